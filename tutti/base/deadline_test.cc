// deadline
