package oidc

// Why says what a sign-in came to nothing by.
type Why int

// The reasons.
const (
	// Stray is a request that belongs to no sign-in of its browser: forged, late, or a second time.
	Stray Why = iota + 1
	// Denied is a sign-in that the provider, or who signs in, did not want.
	Denied
	// Untrusted is an answer of the provider that proves nothing.
	Untrusted
	// Nobody is somebody to whom nothing gives a role or a name here.
	Nobody
	// Unset is a setting that does not fit the provider.
	Unset
	// Away is a provider that does not answer, or not as one does.
	Away
)

// RefusedError is the error of a sign-in.
type RefusedError struct {
	Why Why
	// Text is for who signs in, and has no secret in it.
	Text string
	// Name and Identity are of whom the provider has named, once it has; see Person.
	Name, Identity string
	// Err is for the log; nil: the text says it all.
	Err error
}

// Error is for the log.
func (r *RefusedError) Error() string {
	if r.Err != nil {
		return r.Text + ": " + r.Err.Error()
	}
	return r.Text
}

// Unwrap is the cause.
func (r *RefusedError) Unwrap() error { return r.Err }
