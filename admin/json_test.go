package admin_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/text"
)

// samples contains a valid text for every parameter.
var samples = []string{
	"17", "1", "night", "sender", "a,b", "+10m", "2026-11-20 08:50", "2h", "90d", "30km", "12.5mi", "37.57,-126.98", "0.5", "250ms", "on", "RUNNING,PENDING",
	"3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74", "-1:8", "17:-4", "permanent", "3/24h", "operator", `{"a":1}`, `{"kind":"everyone"}`, "none", "default", "22:00-08:00", "push,sms", "run,deliver", "installation", "1700.42", "2026-11-20T08:50:00Z/default/17/", "external_id", "AQAAAAAAAAAAAAAAAAAAAAAAAAA", "0123456789abcdef",
}

// A parameter's JSON is parsed to the same value, so that a client can send it to another process.
func TestParam_IsUnderstoodAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, o := range admin.Operations() {
		for _, p := range o.Params() {
			taken := 0
			for _, text := range samples {
				in := o.NewInput()
				if p.Set(in, text) != nil {
					continue
				}
				taken++
				raw, err := p.JSON(in, o)
				require.NoError(t, err)
				back := o.NewInput()
				if raw != nil {
					require.NoError(t, p.SetJSON(back, raw), "%s: %s as %s", o.Name, p.Name, raw)
				}
				require.Equal(t, in, back, "%s: %s as %s", o.Name, p.Name, raw)
			}
			require.Positive(t, taken, "%s: %s takes no sample", o.Name, p.Name)
		}
	}
}

// All fields of a result are in its JSON, so that a client has the whole result.
func TestResults_AreAllInTheirJSON(t *testing.T) {
	t.Parallel()
	var look func(of reflect.Type, path string)
	looked := make(map[reflect.Type]bool)
	look = func(of reflect.Type, path string) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			if of == reflect.TypeFor[text.Line]() { // a string in JSON
				return
			}
			of = of.Elem()
		}
		reads := reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]())
		require.NotEqual(t, reflect.Interface, of.Kind(), path)
		if of.Kind() != reflect.Struct || looked[of] || reads {
			return
		}
		looked[of] = true
		require.False(t, of.Implements(reflect.TypeFor[json.Marshaler]()), "%s writes JSON that it does not read", path)
		for i := range of.NumField() {
			f := of.Field(i)
			require.True(t, f.IsExported() || f.Anonymous, "%s.%s is not in the JSON", path, f.Name)
			require.NotEqual(t, "-", f.Tag.Get("json"), "%s.%s is not in the JSON", path, f.Name)
			look(f.Type, path+"."+f.Name)
		}
	}
	for _, o := range admin.Operations() {
		for _, result := range o.Results() {
			look(result, o.Name+": "+result.String())
		}
	}
}

// A list that was parsed from JSON has its next page.
func TestOperation_ReadsItsResult(t *testing.T) {
	t.Parallel()
	out, err := admintest.Operation(t, "jobs list").ReadResult([]byte(`[{"id": 17, "title": "x"}]`), "17")
	require.NoError(t, err)
	page, is := out.(operation.List[jobs.JobState])
	require.True(t, is)
	require.Equal(t, "17", page.Next)
	require.EqualValues(t, 17, page.Items[0].ID)
	_, err = admintest.Operation(t, "jobs list").ReadResult([]byte(`{}`), "")
	require.ErrorContains(t, err, "the result of jobs list")
}

// Parameters that accept instants are recognized.
func TestParam_KnowsMoments(t *testing.T) {
	t.Parallel()
	var moments []string
	for _, o := range admin.Operations() {
		for _, p := range o.Params() {
			takes := p.Set(o.NewInput(), "2026-11-20 08:50") == nil && p.Set(o.NewInput(), "2026-11-20 08:50:00+00:00") == nil && p.Set(o.NewInput(), "no moment") != nil
			require.Equal(t, takes, p.Moment(), "%s: %s", o.Name, p.Name)
			if takes {
				moments = append(moments, o.Name+" "+p.Name)
			}
		}
	}
	require.Subset(t, moments, []string{"enqueue at", "jobs set schedule_at", "events list since"})
}
