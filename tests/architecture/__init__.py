"""What holds of the source as a whole: layers, sizes, names, and what a call and a start may cost."""
