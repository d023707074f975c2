package text

// Must returns a value. It panics on an error, which only a fault of the program causes: of an encoding, a template or
// an embedded file.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
