"""What a person types: one module per noun. Prints; decides nothing that a program below doesn't."""
