package fake_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/fake"
)

// What a fault says of itself is read back as the same fault.
func TestParseFault(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"{for: fcm, status: 503, share: 0.1}":                      "",
		`{"share": 0.1, "for": "fcm", "status": 503}`:              "{for: fcm, status: 503, share: 0.1}",
		"for: sms\nstatus: 429\nretry_after: 2s\ncount: 3":         "{for: sms, status: 429, retry_after: 2s, count: 3}",
		"{for: all, latency: 50ms, up_to: 2s}":                     "",
		"{for: webhook, slow: 10s}":                                "",
		"{for: apns, huge: 64}":                                    "",
		"{for: smtp, do: hang, accepted: true}":                    "",
		"{for: webpush, do: reset, skip: 2, accepted: false}":      "",
		`{for: sms, do: invalid-address, address: ^\+999, key: 7}`: `{for: sms, do: invalid-address, address: ^\+999, key: "7"}`,
		"{for: alimtalk, do: undelivered, share: 0.5}":             "",
		"{for: receipts, status: 500, accepted: false}":            "",
	} {
		f, err := fake.ParseFault(given)
		require.NoError(t, err, given)
		if want == "" {
			want = given
		}
		text, err := f.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		again, err := fake.ParseFault(want)
		require.NoError(t, err)
		require.Equal(t, f, again)
	}
}

func TestParseFault_SaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                           `for: "" is not allowed`,
		"status 503":                                 "is not allowed; allowed are texts as {for: fcm, status: 503, share: 0.1}",
		"{for: fmc, status: 503}":                    `for: "fmc" is not allowed; allowed are webhook, sms, fcm, apns, webpush, smtp, alimtalk, token, receipts, all`,
		"{for: fcm}":                                 "0 of do, latency, status, slow and huge are given; allowed is one",
		"{for: fcm, do: hang, status: 503}":          "2 of do, latency, status, slow and huge are given",
		"{for: fcm, do: explode}":                    `do: "explode" is not allowed; allowed are hang, reset,`,
		"{for: fcm, do: latency}":                    `do: "latency" is not allowed`,
		"{for: fcm, status: 200}":                    "status: 200 is not allowed; allowed are 300 to 599",
		"{for: fcm, latency: soon}":                  "cannot unmarshal !!str `soon` into time.Duration",
		"{for: fcm, latency: 2s, up_to: 1s}":         "up_to: 1s is not allowed",
		"{for: fcm, status: 500, up_to: 1s}":         "allowed are times with latency",
		"{for: fcm, slow: 2h}":                       "slow: 2h0m0s is not allowed; allowed are durations above 0, up to 1h",
		"{for: fcm, latency: -1s}":                   "latency: -1s is not allowed",
		"{for: fcm, huge: 2000}":                     "huge: 2000 is not allowed; allowed are 1 to 1024",
		"{for: fcm, do: hang, share: 1.5}":           "share: 1.5 is not allowed; allowed are numbers above 0, up to 1",
		"{for: fcm, do: hang, share: .nan}":          "allowed are numbers above 0, up to 1",
		"{for: fcm, do: hang, count: -1}":            "count: -1 is not allowed; allowed are whole numbers from 1",
		"{for: fcm, do: hang, skip: -1}":             "skip: -1 is not allowed",
		"{for: fcm, do: hang, address: (}":           `address: "(" is not allowed; allowed are regular expressions`,
		"{for: fcm, do: hang, key: (}":               `key: "(" is not allowed`,
		"{for: fcm, do: hang, during: 3}":            "field during not found",
		"{for: fcm, do: hang, count: 1, count: 2}":   `"count" already defined`,
		"{for: fcm, status: 429, retry_after: 10ms}": "allowed are whole seconds from 1s to 24h",
		"{for: fcm, do: hang, retry_after: 1s}":      "retry_after: is not allowed; allowed is it with status",
		"{for: fcm, do: garbage, accepted: false}":   "accepted: is not allowed with garbage; allowed is it with status, hang, reset",
		"{for: fcm, do: undelivered}":                "do: undelivered is not allowed for fcm; allowed is alimtalk",
		"{for: all, do: refused}":                    "refused is not allowed for all",
		"{for: token, do: invalid-address}":          "invalid-address is not allowed for token",
		"{for: token, do: hang, key: x}":             "address, key: are not allowed for token",
		"{for: smtp, status: 301}":                   "allowed are 400 to 599",
		"{for: smtp, status: 451, retry_after: 1s}":  "not for smtp",
		"{for: smtp, do: invalid-address, key: x}":   "key: is not allowed with invalid-address for smtp",
	} {
		_, err := fake.ParseFault(given)
		require.ErrorContains(t, err, want, given)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	err := fake.Config{Listen: "nowhere", SMTPListen: "127.0.0.1:70000", Faults: make([]fake.Fault, 1), ReceiptDelay: -1}.Validate()
	for _, want := range []string{
		`listen: "nowhere" is not allowed; allowed are HOST:PORT`, `smtp_listen: "127.0.0.1:70000" is not allowed`, "faults[0]: for: ",
		"receipt_delay: -1ns is not allowed", "max_keys: 0 is not allowed; allowed are 1 to 100000000", "recent_calls: 0 is not allowed", "now: is nil",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, fake.DefaultConfig().Validate())
	c := fake.DefaultConfig()
	c.Listen, c.TLSListen, c.SMTPListen = "", "", ""
	require.ErrorContains(t, c.Validate(), "allowed is at least one HOST:PORT")
}

// Listeners that are not wanted are not there, and one that cannot be had leaves
// nothing behind.
func TestStart_Listens(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) { c.TLSListen, c.SMTPListen = "", "" })
	require.Empty(t, b.TLSURL()+b.SMTPAddr())
	require.Contains(t, b.Subscription("a"), b.URL())
	c := fake.DefaultConfig()
	c.SMTPListen = strings.TrimPrefix(b.URL(), "http://")
	_, err := fake.Start(t.Context(), c)
	require.ErrorContains(t, err, "smtp_listen: ")
}

// P5: Close ends what hangs, and takes nothing more.
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

// Credentials stay with their directory; the files that configuration names are
// there, for their owner alone.
func TestStart_KeepsCredentials(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	keep := func(c *fake.Config) { c.Keys = dir }
	first, second := setup(t, keep), setup(t, keep)
	a, b := first.credentials, second.credentials
	require.NotEqual(t, a.FCMServiceAccount, b.FCMServiceAccount) // its token_uri has the port
	a.FCMServiceAccount, b.FCMServiceAccount = "", ""
	require.Equal(t, a, b)
	for _, name := range []string{first.FCMServiceAccountFile(), second.FCMServiceAccountFile(), fake.APNsKeyFile, fake.CertificateFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	text, err := os.ReadFile(filepath.Join(dir, first.FCMServiceAccountFile()))
	require.NoError(t, err)
	require.Contains(t, string(text), first.URL(), "a second fake has not put its own in the place of it")
	require.Equal(t, 200, second.fcm(t.Context(), "k", "a").status)
	key := func(b *bench) string { return b.Subscription("ann")[strings.Index(b.Subscription("ann"), "keys"):] }
	require.Equal(t, key(first), key(second))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "fake.json"), []byte("{}"), 0o600))
	c := fake.DefaultConfig()
	c.Keys = dir
	_, err = fake.Start(t.Context(), c)
	require.ErrorContains(t, err, "remove it to have new ones made")
}

// P3: beyond the bounds, calls are counted and no more.
func TestServer_MemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) { c.MaxKeys, c.RecentCalls = 3, 2 })
	for i := range 5 {
		require.Equal(t, 200, b.sms(t.Context(), fmt.Sprint("k", i), "a").status)
	}
	b.sms(t.Context(), "k0", "a")
	b.sms(t.Context(), "", "a")
	tally := b.Summary().Of(fake.SMS)
	balanced(t, tally)
	require.Equal(t, [4]int64{3, 1, 2, 1}, [4]int64{tally.DistinctKeys, tally.Duplicates, tally.Untracked, tally.Keyless})
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
	require.Equal(t, 200, b.get("GET", "/healthz", "").status)
	a := b.get("PUT", "/faults", "[{for: sms, status: 500, count: 1}, {for: fcm, do: hang}]")
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, 500, b.sms(t.Context(), "k", "a").status)
	require.Contains(t, b.get("GET", "/faults", "").body, `"fault": "{for: sms, status: 500, count: 1}",`+"\n    \"hits\": 1")
	b.sms(t.Context(), "k", "a")
	a = b.get("PUT", "/faults", "- {for: sms, do: bad}\n- {for: fcm, do: worse}\n")
	require.Equal(t, 400, a.status)
	require.Contains(t, a.body, `faults[0]: do: "bad"`)
	require.Contains(t, a.body, `faults[1]: do: "worse"`)
	require.Len(t, b.Faults(), 2)
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
	require.Contains(t, b.get("GET", "/calls?provider=fmc", "").body, "allowed are webhook, sms")
	require.Contains(t, b.get("GET", "/calls?sender=fcm", "").body, "allowed is provider")

	var s fake.Summary
	require.NoError(t, json.Unmarshal([]byte(b.get("GET", "/summary", "").body), &s))
	require.Equal(t, b.Summary(), s)
	var c fake.Credentials
	require.NoError(t, json.Unmarshal([]byte(b.get("GET", "/credentials", "").body), &c))
	require.Equal(t, b.credentials, c)

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
	require.Equal(t, 3, strings.Count(a.body, b.TLSURL()+"/webpush/"))
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

	other := setup(t, func(c *fake.Config) { c.Keys = "" })
	b.credentials.VAPIDKey, b.credentials.VAPIDPublicKey = other.credentials.VAPIDKey, other.credentials.VAPIDPublicKey
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

// Several that start at once in a new directory have the same credentials.
func TestStart_TogetherInANewDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	var all sync.WaitGroup
	passwords := make([]string, 4)
	for i := range passwords {
		all.Go(func() {
			c := fake.DefaultConfig()
			c.Keys = dir
			s, err := fake.Start(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			if credentials, err := s.Credentials(); err == nil {
				passwords[i] = credentials.SMTPPassword
			}
			_ = s.Close()
		})
	}
	all.Wait()
	require.NotEmpty(t, passwords[0])
	require.Equal(t, []string{passwords[0], passwords[0], passwords[0], passwords[0]}, passwords)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3+len(passwords), "a service account for each port")
}
