"""Times candidates on this machine's cores, on its GPU and on boards, and checks what they compute."""
