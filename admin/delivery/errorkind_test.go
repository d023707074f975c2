package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/delivery"
)

func TestErrorKind_LeavesWhatDiffersOut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "",
		"the provider is ill":                    "the provider is ill",
		"410 gone":                               "# gone",
		"no such user: kim.lee+news@example.org": "no such user: #",
		"no such user: <kim@example.org>, 3 tries":                              "no such user: <#>, # tries",
		"number +82 10-1234-5678 is unknown":                                    "number # is unknown",
		"ids 1, 2, 3; 4":                                                        "ids #",
		"request 550e8400-e29b-41d4-a716-446655440000 refused":                  "request # refused",
		"token dQw4w9:APA91b_Hx-9 expired":                                      "token #:# expired",
		"dial tcp 10.0.0.1:5432: connection refused":                            "dial tcp #:#: connection refused",
		`Post "https://push.example/v1/send?to=kim": context deadline exceeded`: `Post "#": context deadline exceeded`,
		`user "kim" is unknown`:                                                 `user "#" is unknown`,
		"user 'kim' is unknown":                                                 "user '#' is unknown",
		"user `kim` is unknown":                                                 "user '#' is unknown",
		"user “김” is unknown":                                                   `user "#" is unknown`,
		"can't reach the user's telephone":                                      "can't reach the user's telephone",
		`says "try it later"`:                                                   `says "try it later"`,
		`{"error": "quota exceeded", "id": "kim"}`:                              `{"error": "quota exceeded", "id": "#"}`,
		`{\"error\":\"NotRegistered\",\"at\":17}`:                               `{"error":"#","at":#}`,
		"registration-token-not-registered":                                     "registration-token-not-registered",
		"DeviceTokenNotForTopic":                                                "DeviceTokenNotForTopic",
		strings.Repeat("aBcDeFgH", 4) + " is no token":                          "# is no token",
		"two\n\tlines ":                                                         "two lines",
		"٣ tries, ½ done":                                                       "# tries, # done",
		"bad \xff bytes":                                                        "bad bytes",
	} {
		require.Equal(t, want, delivery.ErrorKind(text), text)
	}
	long := delivery.ErrorKind(strings.Repeat("gone ", 200))
	require.Equal(t, 300, utf8.RuneCountInString(long))
	require.True(t, strings.HasSuffix(long, "…"))
}

// Whatever a provider says, no digit is left and nothing behind an @, and what differs by ids alone
// is one.
func TestErrorKind_IsOneWhateverTheIDs(t *testing.T) {
	t.Parallel()
	id := rapid.OneOf(
		rapid.StringMatching(`[0-9]{1,12}`),
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[a-z]{1,8}[0-9]{1,5}[a-z]{0,3}`),
		rapid.StringMatching(`[a-z]{1,8}(\.[a-z]{1,5})?@[a-z]{1,8}\.org`),
		rapid.StringMatching(`\+82 ?10-?[0-9]{4}-?[0-9]{4}`),
		rapid.StringMatching(`https://[a-z]{2,9}\.org/[a-z0-9/]{0,9}`),
		rapid.StringMatching(`[a-zA-Z]{40,60}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.SampledFrom([]string{"no such user: %s", "%s", "refused (%s): try later", `user "%s" of %s is gone`, "'%s' '%s'", `{"id": "%s", "error": "gone at last"}`, "a %s, %s, b", "code=%s"}).Draw(t, "form")
		n := strings.Count(form, "%s")
		fill := func() string {
			var ids []any
			for range n {
				ids = append(ids, id.Draw(t, "id"))
			}
			return fmt.Sprintf(form, ids...)
		}
		one, another := fill(), fill()
		require.Equal(t, delivery.ErrorKind(one), delivery.ErrorKind(another), "%s\n%s", one, another)
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`([a-z@"'{}0-9.,:;+_# -]|"[a-z0-9@ ]*"){0,60}`)).Draw(t, "text")
		kind := delivery.ErrorKind(text)
		require.False(t, strings.ContainsFunc(kind, unicode.IsNumber), "%q", kind)
		require.NotRegexp(t, `@[a-z]`, kind)
		require.True(t, utf8.ValidString(kind))
		require.LessOrEqual(t, utf8.RuneCountInString(kind), 300)
	})
}
