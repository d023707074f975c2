package admin_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
)

// The definitions of all operations are complete.
func TestOperations_AreWhole(t *testing.T) {
	t.Parallel()
	nouns := operation.Nouns()
	seen := make(map[string]bool)
	for _, o := range admin.Operations() {
		require.False(t, seen[o.Name], "%s is there once", o.Name)
		seen[o.Name] = true
		require.NotEmpty(t, o.Short, o.Name)
		require.False(t, strings.HasSuffix(o.Short, "."), o.Name)
		// The doctor reports addresses of servers and missing privileges. A preview of a schedule runs its
		// query. Dead letters of a job to a radius would reveal where a person is.
		if !slices.Contains([]string{"doctor", "schedules preview", "dead-letters list", "dead-letters errors", "dead-letters show"}, o.Name) {
			require.Equal(t, o.Role > operation.Viewer, o.Changes, "%s: who may only look changes nothing, and looking needs no more", o.Name)
		}
		if o.Noun() != "" {
			require.True(t, slices.ContainsFunc(nouns, func(n operation.Noun) bool { return n.Name == o.Noun() }), "%s: no such noun", o.Name)
		}
		in := o.NewInput()
		optional := false
		for _, p := range o.Params() {
			if p.Name == "actor" || p.Name == "requested_by" {
				require.True(t, p.Local, "%s: over HTTP the token says who it is, and so do the events", o.Name)
			}
			switch p.Place {
			case operation.Argument:
				require.False(t, optional && p.Required, "%s: what may be left out comes last", o.Name)
				optional = !p.Required
			case operation.Flag:
				require.NotEmpty(t, p.Help, "%s: --%s", o.Name, p.Flag)
				require.NotContains(t, p.Help, "{events}", "%s: --%s", o.Name, p.Flag)
			case operation.Key:
				require.NotEmpty(t, p.Help+p.Allowed, "%s: %s", o.Name, p.Name)
				require.False(t, p.Given(in), "%s: %s", o.Name, p.Name)
			}
		}
	}
}

// The columns of a list are the fields of its JSON.
func TestOperations_ListsHaveTheColumnsOfTheirJSON(t *testing.T) {
	t.Parallel()
	for _, o := range admin.Operations() {
		records := o.Records()
		if verb := o.Verb(); verb == "list" || verb == "events" {
			require.NotNil(t, records, "%s is a list", o.Name)
		}
		if records == nil {
			continue
		}
		require.False(t, o.Changes, "%s: an act is no list", o.Name)
		row := reflect.New(records.Of())
		giveAudiences(row.Elem())
		document, err := json.Marshal(row.Interface())
		require.NoError(t, err)
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(document, &fields))
		var columns []string
		for _, name := range records.Names() {
			field, _, _ := strings.Cut(name, ".")
			columns = append(columns, field)
		}
		for field := range fields {
			require.Contains(t, columns, field, o.Name)
		}
		require.NoError(t, records.Each(row.Interface(), func(cells ...string) error {
			require.Len(t, cells, len(columns))
			return nil
		}), o.Name)
	}
}

// giveAudiences sets audiences, which have no zero value in JSON, in a struct and its fields.
func giveAudiences(v reflect.Value) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		switch field := v.FieldByIndex(f.Index); {
		case f.Type == reflect.TypeFor[channels.Audience]():
			field.Set(reflect.ValueOf(channels.Everyone()))
		case f.Type.Kind() == reflect.Struct && f.IsExported() && f.Type != reflect.TypeFor[time.Time]():
			giveAudiences(field)
		}
	}
}

func TestParam_SaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ operation, param, text, problem string }{
		{"lanes events", "limit", "1", ""},
		{"lanes events", "limit", "1_000", ""},
		{"lanes events", "limit", "0", "allowed values: whole numbers from 1 to 1000"},
		{"lanes events", "limit", "1001", "allowed values: whole numbers from 1 to 1000"},
		{"lanes events", "before", "-1", "allowed values: whole numbers from 1"},
		{"lanes events", "before", "9223372036854775808", "allowed values: whole numbers from 1"},
		{"jobs show", "id", "0", "allowed values: whole numbers from 1, see belfry jobs list"},
		{"jobs list", "status", "pending, RUNNING", ""},
		{"jobs list", "status", "DONE", "allowed values: PENDING, RUNNING, PROCESSED, ABORTED, FAILED, EXPIRED"},
		{"jobs list", "group", "17", ""},
		{"jobs list", "group", "3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74", ""},
		{"jobs list", "group", "3f2b8c1e7a904f0d9c612b1f6d5e8a74", "allowed values: a group's id, such as 3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74, or the id of one of its jobs, such as 17; see `belfry jobs list`"},
		{"jobs set", "schedule_at", "+2h", ""},
		{"jobs set", "schedule_at", "+-2h", `"+-2h" is not allowed; allowed values: RFC 3339, +2h from now, or "2026-11-20 08:50" in local time`},
		{"jobs set", "expires_at", "none", ""},
		{"jobs set", "data", "null", `"null" is not allowed; allowed values: JSON objects of up to 16384 bytes`},
		{"jobs set", "audience", `{"kind": "all"}`, `audience.kind: "all" is not allowed; allowed values: everyone, platforms, radius, channels, segment`},
		{"abort", "id", "1.5", "allowed values: whole numbers from 1, see belfry jobs list"},
		{"resume", "data", "[1]", "allowed values: JSON objects of up to 16384 bytes"},
		{"resume", "near", "91,0", "allowed values: LATITUDE,LONGITUDE in degrees, -90 to 90 and -180 to 180, such as 37.57,126.98"},
		{"resume", "radius", "30", "allowed values: 1m to 20037.509km, with the unit m, km or mi, such as 30km"},
		{"resume", "channel_id", "1,two", "allowed values: whole numbers, separated by commas"},
		{"channels opt-out", "channel", "x", "allowed values: whole numbers"},
		{"dead-letters list", "job", "-12", ""},
		{"dead-letters list", "job", "0", "allowed values: whole numbers from 1 for jobs, see `belfry jobs list`, or from -1 down for activities"},
		{"dead-letters list", "before", "-1:8", ""},
		{"dead-letters list", "before", "17", "allowed values: JOB:CHANNEL, such as 17:4711"},
		{"dead-letters list", "dead_reason", "permanently", "allowed values: permanent, invalid_address, exhausted, unknown, crashed, no_address, bad_content; did you mean permanent?"},
		{"dead-letters list", "since", "7d", ""},
		{"dead-letters list", "since", "2026-11-20 08:50", ""},
		{"dead-letters list", "since", "+2h", `allowed values: RFC 3339 as 2026-11-20T08:50:00+09:00, "2026-11-20 08:50" in local time, or the time since then, as 90m, 2h or 7d`},
		{"dead-letters redrive", "plan", "312", "allowed values: the token that --dry-run shows"},
		{"limits set", "duty_cycle", "50%", ""},
		{"limits set", "duty_cycle", "NaN", `"NaN" is not allowed; allowed values: 0.01 to 1, such as 0.5 or 50%, or none`},
		{"limits set", "duty_cycle", "none", ""},
		{"limits set", "duty_cycle", "", ""},
		{"limits set", "chunk_target", "2m", `"2m" is not allowed; allowed values: durations of 1ms to 1m, or none`},
		{"limits set", "health_checks", "none", `"none" is not allowed; allowed values: on (required), off`},
		{"senders set", "rate_per_second", "0", `"0" is not allowed; allowed values: above 0 to 1000000, or default`},
		{"senders set", "rate_per_second", "none", ""},
		{"categories set", "cap", "3", `"3" is not allowed; allowed values: a number of messages from 1 to 10000 and a time from 1m to 8784h, such as 3/24h, or none`},
	} {
		o := admintest.Operation(t, test.operation)
		in := o.NewInput()
		err := admintest.Set(t, o, in, test.param, test.text)
		if test.problem == "" {
			require.NoError(t, err, "%s %s=%q", test.operation, test.param, test.text)
			continue
		}
		require.EqualError(t, err, test.problem, "%s %s=%q", test.operation, test.param, test.text)
		for _, p := range o.Params() {
			require.Equal(t, p.Default != "", p.Given(in), "%s: %s: what is refused leaves nothing behind", test.operation, p.Name)
		}
	}
}

// All missing parameters are reported before anything is done: there is no database here.
func TestRun_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	o := admintest.Operation(t, "lanes pause")
	out, err := o.Run(t.Context(), &operation.Env{Role: operation.Operator}, o.NewInput())
	require.Nil(t, out)
	var bad *operation.InvalidError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, []operation.Problem{{Param: "lane", Text: "is required"}}, bad.Problems)
}

// Invalid combinations are rejected before anything is done: there is no database here.
func TestRun_RefusesWhatDoesNotGoTogether(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		operation string
		given     [][2]string
		problem   string
	}{
		{"retry", nil, "retry takes either the ids of jobs or --group GROUP"},
		{"recall", [][2]string{{"id", "1"}, {"group", "2"}}, "recall takes either the ids of jobs or --group GROUP"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"group", "2"}}, "resume takes either the ids of jobs or --group GROUP"},
		{"resume", [][2]string{{"id", "1"}, {"title", ""}}, "changes of title, body, data, variants and audience require --edit"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}}, "--edit requires --title, --body, --data, --variants or an audience"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"everyone", "on"}, {"segment", "beta"}}, "--everyone and --segment exclude each other; give one audience"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"radius", "1km"}}, "--radius needs --near LAT,LON"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"near", "37.57,126.98"}}, "--near needs --radius, such as --radius 30km"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"everyone", "on"}, {"platform", "ios"}}, "--platform cannot be combined with --everyone; it narrows --near and --segment, and by itself selects whole platforms"},
		{"resume", [][2]string{{"id", "1"}, {"edit", "on"}, {"external_id", ""}}, "external_id: audience.external_ids: \"\" is not an external id; allowed values: texts of 1 to 200 characters"},
	} {
		o := admintest.Operation(t, test.operation)
		in := o.NewInput()
		for _, p := range test.given {
			require.NoError(t, admintest.Set(t, o, in, p[0], p[1]), test.problem)
		}
		out, err := o.Run(t.Context(), &operation.Env{Role: operation.Admin}, in)
		require.Nil(t, out)
		require.EqualError(t, err, test.problem)
	}
}

// A flag in a text for the command line is the parameter's name in a text of the API.
func TestOperations_TextsNameParametersAsTheirReadersDo(t *testing.T) {
	t.Parallel()
	o := admintest.Operation(t, "enqueue")
	const text = "--channel-id and --near exclude each other; `belfry channels count --near` looks, --json shows"
	require.Equal(t, "`channel_id` and `near` exclude each other; `belfry channels count --near` looks, --json shows", o.WithNames(text))
}

// A list has one form in JSON, and parses it.
func TestList_JSONIsThatOfItsItems(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(operation.List[int]{})
	require.NoError(t, err)
	require.Equal(t, "[]", string(b))
	b, err = json.Marshal(operation.List[int]{Items: []int{1, 2}, Next: "2"})
	require.NoError(t, err)
	require.Equal(t, "[1,2]", string(b))
	var back operation.List[int]
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, []int{1, 2}, back.Items)
}

// A parameter that is JSON accepts an object in JSON, and nothing else.
func TestParam_ObjectsAreObjectsInJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ operation, param, raw, problem string }{
		{"enqueue", "data", `{"a": 1}`, ""},
		{"enqueue", "data", `"{}"`, "allowed values: JSON objects of up to 16384 bytes"},
		{"enqueue", "audience", `{"kind": "everyone"}`, ""},
		{"enqueue", "audience", `{"kind": "all"}`, `audience.kind: "all" is not allowed; allowed values: everyone, platforms, radius, channels, segment`},
		{"jobs set", "variants", `{"ko": {"title": "x"}}`, ""},
		{"jobs set", "variants", "null", ""},
		{"jobs set", "data", "[1]", "allowed values: JSON objects of up to 16384 bytes"},
	} {
		o := admintest.Operation(t, test.operation)
		i := slices.IndexFunc(o.Params(), func(p operation.Param) bool { return p.Name == test.param })
		err := o.Params()[i].SetJSON(o.NewInput(), json.RawMessage(test.raw))
		if test.problem == "" {
			require.NoError(t, err, "%s %s", test.param, test.raw)
			continue
		}
		require.ErrorContains(t, err, test.problem, "%s %s", test.param, test.raw)
	}
}
