"""What a person does with a table beside filling it, a file each."""
