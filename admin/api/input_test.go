package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
)

// Whatever comes, each operation has an input of it, or a problem that says why not.
func FuzzInput(f *testing.F) {
	for _, body := range []string{`{"reason": "x"}`, `{"route": ["a"]}`, `{"cap": null}`, `{"priority": 1e999}`, `[]`, `{"a":{}}`, `{"reason":"\ud800"}`} {
		f.Add("night", "limit=3&lane=x", body)
	}
	for _, query := range []string{"before=17", "before=17:4711", "before=17:-4", "before=-1:8", "before=1700.42", "after=1700.42", "after=3", "after=", "before=99999999999999999999.1"} {
		f.Add("1", query, "")
	}
	operations := admin.Operations()
	f.Fuzz(func(t *testing.T, name, query, body string) {
		for _, o := range operations {
			r := routeOf(o)
			req := httptest.NewRequest(r.method, "/x", strings.NewReader(body))
			req.URL = &url.URL{Path: "/x", RawQuery: query}
			req.Header.Set("Content-Type", "application/json")
			for param, at := range r.in {
				if at == inPath {
					req.SetPathValue(param, name)
				}
			}
			in, problem := inputOf(o, r, req)
			require.Equal(t, in == nil, problem != nil)
			if problem != nil {
				require.GreaterOrEqual(t, problem.Status, http.StatusBadRequest)
				require.Less(t, problem.Status, http.StatusInternalServerError)
			}
		}
	})
}

// A problem is small, however many parameters are wrong and however long they are.
func TestInput_ProblemsAreBrief(t *testing.T) {
	t.Parallel()
	var unknown strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&unknown, `,"%x":0`, i)
	}
	long := strings.Repeat("x", 100_000)
	for _, o := range admin.Operations() {
		r := routeOf(o)
		bodies := []string{`{"z": 0` + unknown.String() + `}`}
		for _, p := range o.Params() {
			if r.in[p.Name] == inBody {
				bodies = append(bodies, fmt.Sprintf(`{%q: %q}`, p.Name, long), fmt.Sprintf(`{%q: [%q]}`, p.Name, long), fmt.Sprintf(`{%q: {%q: 1}}`, p.Name, long))
			}
		}
		for _, body := range bodies {
			req := httptest.NewRequest(r.method, "/x", strings.NewReader(body))
			if !o.Changes {
				req = httptest.NewRequest(r.method, "/x", nil)
				req.URL.RawQuery = strings.NewReplacer(`,"`, "&", `":0`, "=0").Replace(unknown.String())
			}
			req.Header.Set("Content-Type", "application/json")
			_, problem := inputOf(o, r, req)
			text, err := json.Marshal(problem)
			require.NoError(t, err)
			require.Less(t, len(text), 20<<10, "%s: %.100s: %.300s", o.Name, body, text)
		}
	}
}

// A token is what its page begins with, whatever that is, and nothing else is a token.
func FuzzPageToken(f *testing.F) {
	for _, text := range []string{"17", "17:4711", "a\x00b", "ü", "bGFuZXMgZXZlbnRz", "="} {
		f.Add(text)
	}
	o := admin.Operations()[0]
	f.Fuzz(func(t *testing.T, text string) {
		begins, err := beginOf(o, tokenOf(o, text))
		require.Equal(t, text == "", err != nil)
		require.Equal(t, text, begins)
		if begins, err = beginOf(o, text); err == nil {
			require.Equal(t, text, tokenOf(o, begins), "there is one token of each page")
		}
	})
}

// What is taken for an object is one to everybody else.
func FuzzObject(f *testing.F) {
	for _, body := range []string{`{}`, `{"a": 1, "b": [{}]}`, `{"a": 1} x`, `{"a": 1, "a": 2}`, `{`, ``, `{"a"`, `null`, "\xff"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, err := operation.FieldsOf(body)
		if err != nil {
			return
		}
		var same map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &same))
		require.Len(t, same, len(fields))
	})
}

// Twenty failures in a row are answered, then one in six seconds; another address has its
// own, a good token ends the row, and the log says it once.
func TestLockout(t *testing.T) {
	t.Parallel()
	const inARow, every = 20, 6 * time.Second
	said := 0
	l := newLockout(inARow, every, func(string) { said++ })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { return now }
	row := func(from string) {
		t.Helper()
		for range inARow {
			require.Zero(t, l.bad(from))
		}
		require.InDelta(t, every.Seconds(), l.bad(from).Seconds(), 0.01)
	}
	row("a")
	require.NotZero(t, l.bad("a"))
	require.Zero(t, l.bad("b"))
	now = now.Add(every)
	require.Zero(t, l.bad("a"))
	require.NotZero(t, l.bad("a"))
	require.Equal(t, 1, said, "one lockout, one line")
	l.good("a")
	row("a")
	require.Equal(t, 2, said)
	for i := range 2 * maxKeys {
		l.bad(time.Duration(i).String())
	}
	require.LessOrEqual(t, len(l.keys), maxKeys)
}

func TestPeer_IsANetworkOfIPv6(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7:99":            "192.0.2.7",
		"[::1]:99":                "::/64",
		"[2001:db8:1:2:3::4]:443": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:443":      "fe80::/64",
		"[::ffff:192.0.2.7]:99":   "192.0.2.7",
		"@":                       "@",
	} {
		require.Equal(t, want, peer(&http.Request{RemoteAddr: address}))
	}
}
