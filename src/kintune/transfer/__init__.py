"""What travels from job to job: good programs and family models, gathered from the records and trained from them."""
