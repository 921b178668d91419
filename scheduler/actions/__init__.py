"""The steps of a cycle, one module each. An action changes the session through statements and `let_in` only."""
