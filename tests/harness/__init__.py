"""Programs that tests run as processes of their own, and a reader of stores that shares no code with mempp."""
