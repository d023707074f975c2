package draft_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/console/draft"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/job"
)

// What Apply makes of a form stays as it is when the form that New makes of it is submitted: otherwise a reviewed
// notification would count as changed.
func TestApply_IsStable(t *testing.T) {
	t.Parallel()
	for _, fields := range []url.Values{
		{"everyone": {"on"}, "type": {"inbox", "push"}},
		{"_to": {"everyone"}, "near": {"1,2"}, "radius": {"5km"}, "segment": {"vip"}},
		{"_to": {"platform"}, "platform": {"ios", "web"}, "_when": {"at"}, "at": {"2036-01-02T03:04:00Z"}},
		{"near": {"seoul"}, "radius": {"30km"}, "variants": {`{"ko": {"title": "안녕"}, "de": {"body": "Guten <Tag>"}}`}},
		{"_to": {"list"}, "external_id": {"a\nb"}, "_when": {"free"}, "_free": {"2036-01-02T03:04:00Z"}},
		{"_when": {"now"}, "at": {"2036-01-02T03:04:00Z"}, "_locale": {"ko", ""}, "_title": {" 안녕 ", ""}, "_body": {"", ""}},
	} {
		values := without(fields)
		require.Empty(t, draft.Apply(values, fields, time.UTC))
		form := draft.New(draft.Source{Values: values, Fields: fields, Inputs: []parts.Input{{Name: "at", Value: values.Get("at")}}})
		again := url.Values{"_to": {form.To}, "_when": {form.When}}
		for name, list := range values {
			again[name] = append([]string{}, list...)
		}
		for _, l := range form.Languages[1:] {
			again.Add("_locale", l.Locale)
			again.Add("_title", l.Title)
			again.Add("_body", l.Body)
		}
		if form.When == "free" {
			again.Set("_free", form.Free)
		}
		next := without(again)
		require.Empty(t, draft.Apply(next, again, time.UTC))
		require.Equal(t, values, next)
	}
}

// without returns the parameters of fields.
func without(fields url.Values) url.Values {
	values := make(url.Values)
	for name, list := range fields {
		if name[0] != '_' {
			values[name] = append([]string{}, list...)
		}
	}
	return values
}

func TestApply_FindsWhatTheFormLacks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields      url.Values
		field, says string
	}{
		{url.Values{"_when": {"at"}}, "at", "is needed"},
		{url.Values{"_locale": {""}, "_title": {"x"}}, "variants", "without a language"},
		{url.Values{"_locale": {"ko", "ko"}, "_title": {"x"}}, "variants", "the language ko twice"},
	} {
		faults := draft.Apply(without(c.fields), c.fields, time.UTC)
		require.Contains(t, faults[c.field], c.says)
	}
}

// A lane is free in the first gap that is long enough.
func TestNextFree_FindsAGap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	left, short := 300.0, int64(90_000)
	running := []jobs.WatchedJob{{Lane: "a", Status: job.Running, SecondsLeft: &left}, {Lane: "b", Status: job.Running}, {Lane: "c", Status: job.Processed}}
	entries := []upcoming.Entry{{Lane: "a", At: at(-5), ExpectedMS: &short}, {Lane: "d", At: at(1)}, {Lane: "a", At: at(12)}, {Lane: "a", At: at(60)}, {Lane: "b", At: at(21)}}
	for lane, want := range map[string]time.Time{
		"a": at(22), // the running job, 90 s, and one of unknown length at 12:12
		"b": at(10), // one of unknown length runs
		"c": now,
		"d": at(11),
	} {
		require.Equal(t, want, draft.NextFree(lane, running, entries, now), lane)
	}
}
