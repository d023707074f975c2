package fake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
)

// P1, P2: each provider takes a message, reads its key, address and content, and
// counts a second one as a duplicate, or where keys are honoured as a repeat that is
// answered as the first.
func TestServer_CountsByKey(t *testing.T) {
	t.Parallel()
	for _, honour := range []bool{false, true} {
		t.Run(fmt.Sprintf("honour=%t", honour), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *fake.Config) { c.HonourKeys = honour })
			for p, send := range b.senders() {
				first := send(t.Context(), "k-1", "to-1")
				require.NoError(t, first.err, p)
				require.Less(t, first.status, 300, "%s: %s", p, first.body)
				second := send(t.Context(), "k-1", "to-1")
				require.Less(t, second.status, 300)
				require.Less(t, send(t.Context(), "k-2", "to-2").status, 300)

				tally := b.Summary().Of(p)
				balanced(t, tally)
				require.Equal(t, int64(3), tally.Accepted)
				require.Equal(t, int64(2), tally.DistinctKeys)
				if honour {
					require.Equal(t, int64(1), tally.Repeats)
					if p != fake.AlimTalk { // its answer tells the time
						require.Equal(t, first.body, second.body, p)
					}
				} else {
					require.Equal(t, int64(1), tally.Duplicates)
				}
				calls := b.Calls(p)
				require.Len(t, calls, 3)
				if p != fake.AlimTalk { // which has no place for it
					require.Equal(t, "k-1", calls[0].Key)
				}
				require.Equal(t, "there", calls[0].Body)
				if p != fake.WebPush {
					require.Equal(t, "to-1", calls[0].Address, p)
				}
			}
			total := b.Summary().Total()
			balanced(t, total)
			require.Equal(t, int64(18), total.Calls)
		})
	}
}

// Each fault of each provider, as a plain client sees it, and as it is counted.
func TestServer_FailsAsOrdered(t *testing.T) {
	t.Parallel()
	for p := range setup(t).senders() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			o := &ordered{bench: setup(t), of: p}
			o.send = o.senders()[p]
			o.refusals()
			o.lostAnswers()
			o.badAnswers()
			o.latencies()
		})
	}
}

// ordered orders faults of one provider.
type ordered struct {
	*bench

	of   fake.Provider
	send func(context.Context, string, string) answer
	n    int
}

func (o *ordered) tally() fake.Tally { return o.Summary().Of(o.of) }

// call makes a call that meets a fault. A client leaves as soon as the provider has
// seen what leave waits for; nil: it stays until it is answered.
func (o *ordered) call(fault string, leave func(fake.Tally) bool) (answer, fake.Tally) {
	o.n++
	o.Reset()
	o.order("{for: " + string(o.of) + ", " + fault + "}")
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	done := make(chan answer, 1)
	go func() { done <- o.send(ctx, fmt.Sprint("key-", o.n), fmt.Sprint("to-", o.n)) }()
	if leave != nil {
		until(o.t, func() bool { return leave(o.tally()) })
		cancel()
	}
	a := <-done
	balanced(o.t, o.tally())
	return a, o.tally()
}

func (o *ordered) refusals() {
	t := o.t
	a, tally := o.call("status: 503, retry_after: 7s", nil)
	require.NoError(t, a.err)
	require.Equal(t, 503, a.status)
	require.Equal(t, "7", a.header.Get("Retry-After"))
	require.True(t, json.Valid([]byte(a.body)), a.body)
	require.Equal(t, int64(1), tally.Refusals())

	if o.of == fake.AlimTalk {
		return // it says so later
	}
	a, tally = o.call("do: invalid-address", nil)
	want := map[string][2]string{
		"webhook": {"410", "410"}, "sms": {"400", "invalid_number"}, "fcm": {"404", "UNREGISTERED"}, "apns": {"410", "Unregistered"}, "webpush": {"410", "410"},
	}[string(o.of)]
	require.Equal(t, want[0], fmt.Sprint(a.status))
	require.Equal(t, map[string]int64{want[1]: 1}, tally.Refused)
}

func (o *ordered) lostAnswers() {
	t := o.t
	seen := func(tally fake.Tally) bool { return tally.Calls == 1 }
	for _, lost := range []struct {
		fault    string
		accepted int64
		leave    func(fake.Tally) bool
	}{{"do: hang", 0, seen}, {"do: hang, accepted: true", 1, seen}, {"do: reset", 1, nil}, {"do: reset, accepted: false", 0, nil}} {
		a, tally := o.call(lost.fault, lost.leave)
		require.Error(t, a.err, lost.fault)
		require.NotErrorIs(t, a.err, context.DeadlineExceeded)
		require.Equal(t, lost.leave != nil, errors.Is(a.err, context.Canceled), "%s: %v", lost.fault, a.err)
		require.Equal(t, lost.accepted, tally.Accepted, lost.fault)
		require.Equal(t, lost.accepted, tally.Unanswered)
		require.Equal(t, 1-lost.accepted, tally.Dropped)
	}
}

func (o *ordered) badAnswers() {
	t := o.t
	a, tally := o.call("do: garbage", nil)
	require.NoError(t, a.err)
	require.Less(t, a.status, 300)
	require.False(t, json.Valid([]byte(a.body)))
	require.Equal(t, [2]int64{1, 1}, [2]int64{tally.Accepted, tally.Unanswered})
}

func (o *ordered) latencies() {
	t := o.t
	a, tally := o.call("latency: 20ms", nil)
	require.NoError(t, a.err)
	require.Equal(t, int64(1), tally.Accepted)

	// A client that leaves during a latency has handed nothing over.
	o.Reset()
	o.order("{for: " + string(o.of) + ", latency: 1h}")
	for wait := 20 * time.Millisecond; o.tally().Dropped == 0; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		require.ErrorIs(t, o.send(ctx, "late", "to").err, context.DeadlineExceeded)
		cancel()
	}
	require.Zero(t, o.tally().Accepted)
}

// Calls within a latency take as long.
func TestServer_IsLateAsOrdered(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) { c.Faults = faults("{for: webhook, latency: 30ms}", "{for: all, latency: 20ms}") })
	began := time.Now()
	require.Equal(t, 200, b.webhook(t.Context(), "k", "a").status)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
}

// A provider refuses by itself what is not proven or not well-formed.
func TestServer_RefusesStrangers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stranger := *b
	stranger.settings = map[string]map[string]any{
		"fcm":     {"service_account": strings.Replace(b.setting("fcm", "service_account"), "fake@", "other@", 1)},
		"webhook": {"secrets": "whsec_AAAA"}, "apns": {"key": b.setting("apns", "key"), "key_id": "other", "team_id": b.setting("apns", "team_id")},
		"webpush": {"private_key": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"}, "alimtalk": {"service_id": b.setting("alimtalk", "service_id")},
	}
	for name, status := range map[string]int{"webhook": 401, "sms": 401, "fcm": 401, "apns": 403, "webpush": 403, "alimtalk": 401} {
		p := fake.Provider(name)
		require.Equal(t, status, stranger.senders()[p](t.Context(), "k", "a").status, p)
		require.Equal(t, int64(1), b.Summary().Of(p).Refusals(), p)
		balanced(t, b.Summary().Of(p))
	}
	require.Equal(t, 400, stranger.fcmToken(t.Context()).status)
	require.Equal(t, 505, b.do(t.Context(), b.plain, b.request("POST", b.URL()+"/3/device/a", "{}")).status)
}

// What was not ordered for a call leaves it alone: another provider, another address,
// another key, a count that is used up, the first few.
// FCM takes 4,096 bytes, and no reserved names of data.
func TestServer_RefusesWhatFCMRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fits := 4096 - len("Hello"+"there"+"a")
	for data, status := range map[string]int{
		`{"a":"` + strings.Repeat("x", fits) + `"}`: 200, `{"a":"` + strings.Repeat("x", fits+1) + `"}`: 400,
		`{"fromage":"x","notification":"x"}`: 200, `{"from":"x"}`: 400, `{"message_type":"x"}`: 400, `{"google.c.a":"x"}`: 400, `{"gcm.n":"x"}`: 400,
	} {
		require.Equal(t, status, b.fcmData(t.Context(), "token", data).status, data[:min(len(data), 30)])
	}
}

func TestServer_AimsFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *fake.Config) {
		c.Faults = faults("{for: sms, status: 500, address: ^bad}", "{for: sms, status: 429, count: 2, address: ^good}")
	})
	status := func(address string) int { return b.sms(t.Context(), "k", address).status }
	require.Equal(t, 500, status("bad-1"))
	require.Equal(t, 200, status("third"))
	require.Equal(t, 429, status("good"))
	require.Equal(t, 429, status("good"))
	require.Equal(t, 200, status("good"))
	require.Equal(t, 500, status("bad-2"))
	require.Equal(t, 200, b.webhook(t.Context(), "k", "bad").status)
}

// P3.
func TestServer_DrawsSharesFromTheSeed(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) string {
		b := setup(t, func(c *fake.Config) { c.Seed, c.Faults = seed, faults("{for: sms, status: 500, share: 0.3}") })
		var seen strings.Builder
		for i := range 200 {
			fmt.Fprint(&seen, b.sms(t.Context(), fmt.Sprint(i), "a").status, " ")
		}
		refused := b.Summary().Of(fake.SMS).Refused["500"]
		require.InDelta(t, 60, refused, 30)
		return seen.String()
	}
	first, again, other := draw(3), draw(3), draw(4)
	require.Equal(t, first, again)
	require.NotEqual(t, first, other)
}

// I11: a key that comes back before its Retry-After is over is told.
func TestServer_TellsEarlyCalls(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := setup(t, func(c *fake.Config) {
		c.Now, c.Faults = func() time.Time { return now }, faults("{for: sms, status: 429, retry_after: 2s, count: 2}")
	})
	b.sms(t.Context(), "patient", "a")
	b.sms(t.Context(), "eager", "a")
	now = now.Add(1999 * time.Millisecond)
	b.sms(t.Context(), "eager", "a")
	b.sms(t.Context(), "other", "a")
	now = now.Add(time.Millisecond)
	b.sms(t.Context(), "patient", "a")
	require.Equal(t, int64(1), b.Summary().Of(fake.SMS).Early)
	require.True(t, b.Calls(fake.SMS)[2].Early)
}

// results asks AlimTalk for a result: processing, success or fail with its code.
func (b *bench) result(id string) string {
	var r struct{ MessageStatusName, MessageStatusCode string }
	a := b.sens(b.t.Context(), "GET", "/"+id, "")
	require.Equal(b.t, 200, a.status, a.body)
	require.NoError(b.t, json.Unmarshal([]byte(a.body), &r))
	return strings.TrimSpace(r.MessageStatusName + " " + r.MessageStatusCode)
}

// A call of many messages: each has its own fate, and its result comes later.
func TestServer_AlimTalkResults(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := setup(t, func(c *fake.Config) {
		c.Now, c.ReceiptDelay = func() time.Time { return now }, time.Minute
		c.Faults = faults("{for: alimtalk, do: refused, address: ^1$, count: 1}", "{for: alimtalk, do: undelivered, address: ^2$}", "{for: alimtalk, do: unreported, address: ^3$}", "{for: alimtalk, do: invalid-address, address: ^4$}")
	})
	var messages []string
	for i := range 6 {
		messages = append(messages, fmt.Sprintf(`{"to":"%d","content":"there"}`, i))
	}
	body := fmt.Sprintf(`{"plusFriendId":"@us","templateCode":"t1","messages":[%s]}`, strings.Join(messages, ","))
	a := b.sens(t.Context(), "POST", "", body)
	require.Equal(t, http.StatusAccepted, a.status)
	var taken struct {
		Messages []struct{ MessageID, To, RequestStatusCode string }
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &taken))
	require.Len(t, taken.Messages, 6)
	require.NotEqual(t, "A000", taken.Messages[1].RequestStatusCode)
	require.Equal(t, "processing", b.result(taken.Messages[0].MessageID))
	now = now.Add(time.Minute)
	var results []string
	for _, i := range []int{0, 2, 3, 4, 5} {
		require.Equal(t, "A000", taken.Messages[i].RequestStatusCode)
		results = append(results, b.result(taken.Messages[i].MessageID))
	}
	require.Equal(t, []string{"success 0000", "fail 3018", "processing", "fail 3019", "success 0000"}, results)
	require.Equal(t, 404, b.sens(t.Context(), "GET", "/unknown", "").status)
	tally := b.Summary().Of(fake.AlimTalk)
	balanced(t, tally)
	require.Equal(t, [3]int64{6, 5, 1}, [3]int64{tally.Calls, tally.Accepted, tally.Refusals()})

	too := strings.Repeat(`{"to":"1","content":"x"},`, 100) + `{"to":"1","content":"x"}`
	require.Equal(t, 400, b.sens(t.Context(), "POST", "", `{"plusFriendId":"@us","templateCode":"t1","messages":[`+too+`]}`).status)
}
