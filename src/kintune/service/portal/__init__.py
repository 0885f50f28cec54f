"""The portal: pages for people, on NiceGUI; it shows and changes what the API does."""
