"""What a person, or a program, is told of a batch."""
