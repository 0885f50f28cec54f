"""How the scheduler chooses; one file a policy."""
