"""The portal: pages for people, on NiceGUI; everything it shows or asks goes through the same rooms as the API."""
