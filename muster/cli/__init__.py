"""The command line: one module for each noun. Prints; decides nothing that a program below doesn't."""
