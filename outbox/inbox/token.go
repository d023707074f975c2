package inbox

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Limits of tokens.
const (
	maxToken    = 4 << 10 // bytes
	maxSubject  = 200     // bytes; external ids have up to 200 characters
	maxLifetime = time.Hour
	leeway      = 30 * time.Second
)

// tokenError is a reason to reject a token. Its text is for the client.
type tokenError string

func (e tokenError) Error() string { return string(e) }

// The reasons to reject a token.
const (
	errNoToken   tokenError = "a reader's token is required: send it as Authorization: Bearer TOKEN"
	errMalformed tokenError = "the token is not a signed JWT"
	errKey       tokenError = "the token's kid names no key"
	errAlgorithm tokenError = "the token's alg is not the algorithm of its key"
	errSignature tokenError = "the token's signature is wrong"
	errExpired   tokenError = "the token has expired"
	errNoExpiry  tokenError = "the token has no exp"
	errTooLong   tokenError = "the token expires later than in an hour"
	errTooEarly  tokenError = "the token is not valid yet: its nbf or iat is in the future"
	errAudience  tokenError = "the token's aud is not this service alone"
	errSubject   tokenError = "the token's sub is not a channel"
	errClaims    tokenError = "the token's claims are not valid"
)

// verify checks a token at a time and returns its subject and its expiry.
func (c Config) verify(keys map[string]verifier, text string, now time.Time) (subject string, expires time.Time, err error) {
	if len(text) > maxToken {
		return "", expires, errMalformed
	}
	var claims jwt.RegisteredClaims
	parser := jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(func() time.Time { return now }))
	_, err = parser.ParseWithClaims(text, &claims, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		key, known := keys[id]
		if _, critical := t.Header["crit"]; critical { // no extension is understood (RFC 7515, 4.1.11)
			return nil, errMalformed
		}
		if !known {
			return nil, errKey
		}
		if t.Method.Alg() != key.algorithm {
			return nil, errAlgorithm
		}
		return key.key, nil
	})
	if err != nil {
		return "", expires, reasonOf(err)
	}
	expires = claims.ExpiresAt.Time
	switch {
	case expires.After(now.Add(maxLifetime + leeway)):
		return "", expires, errTooLong
	case !slices.Equal(claims.Audience, jwt.ClaimStrings{c.Audience}):
		return "", expires, errAudience
	case !c.isSubject(claims.Subject):
		return "", expires, errSubject
	}
	return claims.Subject, expires, nil
}

// isSubject reports whether a sub can be a channel's. An id has one spelling, so that it has one rate limit.
func (c Config) isSubject(subject string) bool {
	if c.Subject == SubjectID {
		id, err := strconv.ParseInt(subject, 10, 64)
		return err == nil && strconv.FormatInt(id, 10) == subject
	}
	return subject != "" && len(subject) <= 4*maxSubject
}

// reasonOf returns the reason of an error of the parser. Its text may contain parts of the token.
func reasonOf(err error) error {
	var own tokenError
	if errors.As(err, &own) {
		return own
	}
	for _, known := range []struct {
		err    error
		reason tokenError
	}{
		{jwt.ErrTokenMalformed, errMalformed}, {jwt.ErrTokenUnverifiable, errAlgorithm}, {jwt.ErrTokenSignatureInvalid, errSignature},
		{jwt.ErrTokenRequiredClaimMissing, errNoExpiry}, {jwt.ErrTokenExpired, errExpired}, {jwt.ErrTokenNotValidYet, errTooEarly},
		{jwt.ErrTokenUsedBeforeIssued, errTooEarly},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return errClaims
}
