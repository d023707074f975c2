package admin

// SendRefused is what `send` makes of the database's errors.
func SendRefused(err error, repeatable bool) error { return sendRefused(err, repeatable) }
