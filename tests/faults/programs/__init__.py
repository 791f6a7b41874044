"""The servers of the fault test; most of them do without the package, and all write down what they execute."""
