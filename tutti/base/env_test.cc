// env
