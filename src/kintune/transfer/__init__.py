"""Transfer between jobs: chooses good programs from the records, and trains family models from them."""
