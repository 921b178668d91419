"""The command line: one module for each noun.

Options, files and output live here. Decisions do not: a command asks the packages below and prints what they answer.
"""
