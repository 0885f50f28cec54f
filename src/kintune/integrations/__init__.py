"""What plugs into other people's tools."""
