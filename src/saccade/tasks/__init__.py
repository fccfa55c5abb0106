"""What models are asked to do, and how well they did it: M families and N tasks meet in M + N files."""
