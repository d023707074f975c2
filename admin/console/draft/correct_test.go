package draft_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/console/draft"
	"github.com/belfryhq/belfry/job"
)

// A caller who may not read the languages of a job cannot replace them by one.
func TestCorrect_AddsNoLanguageToMaskedOnes(t *testing.T) {
	t.Parallel()
	form, values := url.Values{"_locale": {"ko"}, "_title": {"화요일"}}, make(url.Values)
	require.ErrorContains(t, draft.Correct(job.Job{Variants: json.RawMessage(`"(masked)"`)}, form, values), "may not read its languages")
	require.Empty(t, values)
	require.NoError(t, draft.Correct(job.Job{Variants: json.RawMessage(`{}`)}, form, values))
	require.JSONEq(t, `{"ko": {"title": "화요일"}}`, values.Get("variants"))
}
