"""What kolo-timeline does with the files of flight recorders."""
