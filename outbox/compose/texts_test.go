package compose_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

// A batch of many jobs with long texts is read in portions (invariant 6), and each message has the texts of
// its job. A batch of short texts costs no more statements.
func TestCompose_ReadsTextsInPortions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 9
	var ids []int64
	var claimed []outbox.Claimed
	for i := range jobs {
		ids = append(ids, b.job(t, pgx.NamedArgs{"title": fmt.Sprint("title ", i), "body": strings.Repeat(fmt.Sprint(i), 10_000), "data": fmt.Sprintf(`{"i": %d}`, i)}))
		claimed = append(claimed, b.claim(t, ids[i], 1))
	}
	claimed = append(claimed, b.claim(t, ids[0], 2), b.claim(t, ids[jobs-1], 2))
	composed := func(statements int64) {
		t.Helper()
		before := b.composer.Transactions()
		list := b.composed(t, claimed...)
		require.Equal(t, statements, b.composer.Transactions()-before)
		for n, c := range list[:jobs] {
			require.Equal(t, outbox.ActionSend, c.Action)
			require.Equal(t, fmt.Sprint("title ", n), c.Delivery.Title)
			require.Equal(t, strings.Repeat(fmt.Sprint(n), 10_000), c.Delivery.Body)
			require.JSONEq(t, fmt.Sprintf(`{"i": %d}`, n), string(c.Delivery.Data))
		}
	}
	composed(4)
	b.composer.LimitTexts(25_000)
	composed(4 + 4)
	b.composer.LimitTexts(1) // each text is longer than a portion
	composed(4 + jobs - 1)
}
