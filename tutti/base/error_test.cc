// error
