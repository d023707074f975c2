package fake_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
)

func TestParseFault(t *testing.T) {
	t.Parallel()
	no := false
	for given, want := range map[string]fake.Fault{
		"{for: fcm, status: 503, share: 0.1}":                    {For: "fcm", Status: 503, Share: 0.1},
		`{"share": 0.1, "for": "fcm", "status": 503}`:            {For: "fcm", Status: 503, Share: 0.1},
		"for: sms\nstatus: 429\nretry_after: 2s\ncount: 3":       {For: "sms", Status: 429, RetryAfter: 2 * time.Second, Count: 3},
		"{for: all, latency: 50ms}":                              {For: "all", Latency: 50 * time.Millisecond},
		"{for: smtp, do: reset, accepted: false, address: ^ann}": {For: "smtp", Do: "reset", Accepted: &no, Address: "^ann"},
	} {
		f, err := fake.ParseFault(given)
		require.NoError(t, err, given)
		require.Equal(t, want, f)
	}
}

func TestParseFault_SaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                           `for: "" is not allowed`,
		"status 503":                                 "is not allowed; allowed values: faults such as {for: fcm, status: 503, share: 0.1}",
		"{for: fmc, status: 503}":                    `for: "fmc" is not allowed; allowed values: webhook, sms, fcm, apns, webpush, smtp, alimtalk, all`,
		"{for: fcm}":                                 "0 of do, latency and status are given; allowed: exactly one",
		"{for: fcm, do: hang, status: 503}":          "2 of do, latency and status are given",
		"{for: fcm, do: explode}":                    `do: "explode" is not allowed; allowed values: hang, reset,`,
		"{for: fcm, do: latency}":                    `do: "latency" is not allowed`,
		"{for: fcm, status: 200}":                    "status: 200 is not allowed; allowed values: 400 to 599",
		"{for: fcm, latency: soon}":                  "cannot unmarshal !!str `soon` into time.Duration",
		"{for: fcm, latency: -1s}":                   "latency: -1s is not allowed",
		"{for: fcm, do: hang, share: 1.5}":           "share: 1.5 is not allowed; allowed values: numbers above 0, up to 1",
		"{for: fcm, do: hang, share: .nan}":          "allowed values: numbers above 0, up to 1",
		"{for: fcm, do: hang, count: -1}":            "count: -1 is not allowed; allowed values: whole numbers from 1",
		"{for: fcm, do: hang, address: (}":           `address: "(" is not allowed; allowed values: regular expressions`,
		"{for: fcm, do: hang, during: 3}":            "field during not found",
		"{for: fcm, do: hang, count: 1, count: 2}":   `"count" already defined`,
		"{for: fcm, status: 429, retry_after: 10ms}": "allowed values: whole seconds from 1s to 24h",
		"{for: fcm, do: hang, retry_after: 1s}":      "retry_after: is not allowed; allowed only with status",
		"{for: fcm, do: garbage, accepted: false}":   "accepted: is not allowed with garbage; allowed only with hang and reset",
		"{for: fcm, do: undelivered}":                "do: undelivered is not allowed for fcm; allowed only for alimtalk",
		"{for: all, do: refused}":                    "refused is not allowed for all",
		"{for: smtp, status: 301}":                   "allowed values: 400 to 599",
		"{for: smtp, status: 451, retry_after: 1s}":  "not for smtp",
	} {
		_, err := fake.ParseFault(given)
		require.ErrorContains(t, err, want, given)
	}
}

// Addresses that cannot be had leave nothing behind.
func TestStart_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for listen, want := range map[string]string{
		"nowhere": `listen: "nowhere" is not allowed; allowed values: HOST:PORT`, "127.0.0.1:65535": "is not allowed",
		strings.TrimPrefix(b.URL(), "http://"): "listen: ",
	} {
		c := fake.DefaultConfig()
		c.Listen = listen
		_, err := fake.Start(t.Context(), c)
		require.ErrorContains(t, err, want)
	}
	c := fake.DefaultConfig()
	c.Faults = make([]fake.Fault, 1)
	_, err := fake.Start(t.Context(), c)
	require.ErrorContains(t, err, "faults[0]: for: ")
}

// P4: Close ends what hangs, and takes nothing more.
func TestServer_CloseEndsHangingCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) { c.Faults = faults("{for: all, do: hang}") })
	var calls sync.WaitGroup
	for _, send := range []func(context.Context, string, string) answer{b.sms, b.apns, b.webpush} {
		calls.Go(func() {
			if a := send(t.Context(), "k", "a"); a.err == nil {
				t.Errorf("answered %d", a.status)
			}
		})
	}
	c := b.dial()
	calls.Go(func() {
		if codes := c.mail("k", "ann@example.com"); codes[3] == "250" {
			t.Error("answered 250")
		}
	})
	idle := b.dial()
	until(t, func() bool { return b.Summary().Total().Dropped == 4 })
	require.NoError(t, b.Close())
	calls.Wait()
	require.Equal(t, "EOF", idle.reply())
	require.Error(t, b.sms(t.Context(), "k", "a").err)
}

// Credentials are the same at every start, and the last calls are kept.
func TestServer_KeepsCredentialsAndTheLastCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) { c.RecentCalls = 2 })
	again := setup(t)
	ports := strings.NewReplacer(again.URL(), b.URL(), again.SMTPAddr()[len("127.0.0.1:"):], b.SMTPAddr()[len("127.0.0.1:"):])
	require.Equal(t, fmt.Sprint(b.Senders()), ports.Replace(fmt.Sprint(again.Senders())))
	for i := range 5 {
		require.Equal(t, 200, b.sms(t.Context(), fmt.Sprint("k", i), "a").status)
	}
	b.sms(t.Context(), "k0", "a")
	b.sms(t.Context(), "", "a")
	tally := b.Summary().Of(fake.SMS)
	balanced(t, tally)
	require.Equal(t, [3]int64{5, 1, 1}, [3]int64{tally.DistinctKeys, tally.Duplicates, tally.Keyless})
	calls := b.Calls("")
	require.Len(t, calls, 2)
	require.Equal(t, []string{"k0", ""}, []string{calls[0].Key, calls[1].Key})
}

func (b *bench) get(method, path, body string) answer {
	return b.do(b.t.Context(), b.plain, b.request(method, b.URL()+path, body))
}

func TestServer_Control(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.get("PUT", "/faults", "[{for: sms, status: 500, count: 1}, {for: fcm, do: hang}]")
	require.Equal(t, 204, a.status, a.body)
	require.Equal(t, 500, b.sms(t.Context(), "k", "a").status)
	b.sms(t.Context(), "k", "a")
	a = b.get("PUT", "/faults", "- {for: sms, do: bad}\n- {for: fcm, do: worse}\n")
	require.Equal(t, 400, a.status)
	require.Contains(t, a.body, `faults[0]: do: "bad"`)
	require.Contains(t, a.body, `faults[1]: do: "worse"`)
	require.Equal(t, 400, b.get("PUT", "/faults", "[1]").status)

	var calls []fake.Call
	decoder := json.NewDecoder(strings.NewReader(b.get("GET", "/calls?provider=sms", "").body))
	for {
		var c fake.Call
		if err := decoder.Decode(&c); err == io.EOF {
			break
		}
		calls = append(calls, c)
	}
	require.Len(t, calls, 2)
	require.Equal(t, [2]fake.Outcome{fake.Refused, fake.Accepted}, [2]fake.Outcome{calls[0].Outcome, calls[1].Outcome})
	require.Empty(t, b.get("GET", "/calls?provider=fcm", "").body)
	require.Contains(t, b.get("GET", "/calls?provider=fmc", "").body, "allowed values: webhook, sms")

	var s fake.Summary
	require.NoError(t, json.Unmarshal([]byte(b.get("GET", "/summary", "").body), &s))
	require.Equal(t, b.Summary(), s)

	require.Equal(t, http.StatusNoContent, b.get("DELETE", "/calls", "").status)
	require.Zero(t, b.Summary().Total().Calls)
	require.Equal(t, 404, b.get("GET", "/nothing", "").status)
}

// The receiving half of RFC 8291, by the example of its appendix A.
func TestOpenPush_RFC8291(t *testing.T) {
	t.Parallel()
	plain, err := fake.OpenPush("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "BTBZMqHH6r4Tts7J_aSIgg",
		"DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	require.NoError(t, err)
	require.Equal(t, "When I grow up, I want to be a watermelon", string(plain))
}

// Subscriptions that are handed out can be pushed to; a message that is encrypted
// for another, or changed on the way, is refused.
func TestServer_WebPushRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.get("POST", "/webpush/subscriptions?count=3", "")
	require.Equal(t, 201, a.status)
	require.Equal(t, 3, strings.Count(a.body, b.URL()+"/webpush/"))
	require.Equal(t, 400, b.get("POST", "/webpush/subscriptions?count=0", "").status)

	require.Equal(t, 201, b.webpush(t.Context(), "k", "ann").status)
	call := b.Calls(fake.WebPush)[0]
	require.Equal(t, [3]string{"k", "Hello", "there"}, [3]string{call.Key, call.Title, call.Body})
	require.Equal(t, base64.RawURLEncoding.EncodeToString([]byte("ann")), call.Address)

	var ann, bob struct {
		Endpoint string
		Keys     struct{ P256DH, Auth string }
	}
	require.NoError(t, json.Unmarshal([]byte(b.Subscription("ann")), &ann))
	require.NoError(t, json.Unmarshal([]byte(b.Subscription("bob")), &bob))
	body := encrypt(t, ann.Keys.P256DH, ann.Keys.Auth, []byte(`{}`), 2, 0, 0)
	unfinished := encrypt(t, ann.Keys.P256DH, ann.Keys.Auth, []byte(`{}`), 1) // more records would have to follow
	for name, c := range map[string][2]string{
		"another's": {bob.Endpoint, string(body)}, "changed": {ann.Endpoint, string(body[:len(body)-1])}, "unfinished": {ann.Endpoint, string(unfinished)}, "short": {ann.Endpoint, "x"}, "plain": {ann.Endpoint, `{"title":"x"}`},
	} {
		require.Equal(t, 400, b.push(c[0], c[1]).status, name)
	}
	require.Equal(t, 201, b.push(ann.Endpoint, string(body)).status)
	require.Equal(t, 413, b.push(ann.Endpoint, strings.Repeat("x", 4097)).status)

	b.settings["webpush"]["private_key"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"
	require.Equal(t, 403, b.push(ann.Endpoint, string(body)).status, "proven, by a key that the subscription is not bound to")
}

// All at once: nothing is lost from the accounts.
func TestServer_ManyCallers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) {
		c.Faults = faults("{for: sms, status: 503, share: 0.1}", "{for: sms, do: reset, share: 0.05}")
	})
	const callers, each = 8, 200
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				key := fmt.Sprint(i, "-", j)
				for {
					if a := b.sms(t.Context(), key, "a"); a.err == nil && a.status == 200 {
						break
					}
				}
			}
		})
	}
	all.Wait()
	tally := b.Summary().Of(fake.SMS)
	balanced(t, tally)
	require.Equal(t, int64(callers*each), tally.DistinctKeys)
	require.Equal(t, tally.Unanswered, tally.Duplicates, "a caller that cannot know calls again")
	require.Positive(t, tally.Duplicates)
	require.WithinDuration(t, time.Now(), b.Calls("")[0].At, patience)
}
