"""The web process: REST API and portal.  It tunes nothing, writes no records and imports no compiler."""
