"""What people see in a terminal while a job runs and when it is over; free of TVM."""
