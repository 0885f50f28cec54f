"""What makes subgraphs kin: the samples that show it, the families that come of it, and how people see them."""
