package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// A ledger is a test's own record of every change of a job's status, fence or
// cursor, written by a trigger in the transaction that changes it, with the name
// that the transaction bears (see RunBegin).
const ledgerSQL = `
CREATE TABLE public.ledger (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
	job_id bigint NOT NULL, application text NOT NULL DEFAULT current_setting('application_name'),
	old_status text, new_status text, old_fence bigint, new_fence bigint, old_cursor text, new_cursor text, beat timestamptz
);
CREATE FUNCTION public.ledger() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	INSERT INTO public.ledger (job_id, old_status, new_status, old_fence, new_fence, old_cursor, new_cursor, beat)
	VALUES (NEW.id, OLD.status, NEW.status, OLD.fence, NEW.fence, coalesce(OLD."cursor", ''), coalesce(NEW."cursor", ''), OLD.heartbeat_at);
	RETURN NULL;
END $$;
CREATE TRIGGER zz_ledger AFTER UPDATE ON belfry.jobs FOR EACH ROW
	WHEN ((OLD.status, OLD.fence, OLD."cursor") IS DISTINCT FROM (NEW.status, NEW.fence, NEW."cursor"))
	EXECUTE FUNCTION public.ledger();`

func (b *bundle) keepLedger(t *testing.T) {
	t.Helper()
	b.exec(t, ledgerSQL)
}

// breachSQL lists what in a ledger breaks an invariant; %s is the list of legal
// transitions.
const breachSQL = `
WITH l AS (
	SELECT *, lag(new_status) OVER w AS was_status, lag(new_fence) OVER w AS was_fence, lag(new_cursor) OVER w AS was_cursor
	  FROM public.ledger WINDOW w AS (PARTITION BY job_id ORDER BY seq)
), judged AS (
	SELECT l.*, CASE
		WHEN was_status IS NOT NULL AND (was_status, was_fence, was_cursor) <> (old_status, old_fence, old_cursor) THEN 'a committed change was lost'
		WHEN new_fence < old_fence THEN 'I5: the fence fell'
		WHEN new_fence > old_fence AND new_status <> 'RUNNING' THEN 'I5: the fence rose without a claim'
		WHEN new_status = 'RUNNING' AND old_status <> 'RUNNING' AND new_fence <= old_fence THEN 'I5: a claim left the fence'
		WHEN old_status <> new_status AND old_status || '>' || new_status NOT IN (%s) THEN 'I7: illegal transition'
		WHEN old_cursor <> new_cursor AND (old_status <> 'RUNNING' OR new_status <> 'RUNNING') THEN 'I6: the cursor of a job moved that does not run'
		WHEN old_cursor <> new_cursor AND new_cursor::bigint <= coalesce(nullif(old_cursor, ''), '-1')::bigint THEN 'I3: the cursor moved back'
		WHEN old_cursor <> new_cursor AND application <> format('belfry job %%s fence %%s', job_id, new_fence) THEN 'I5: another fence moved the cursor'
	END AS breach FROM l
)
SELECT coalesce(string_agg(format('%%s: job %%s seq %%s at %%s by %%L: %%s>%%s, fence %%s>%%s, cursor %%L>%%L',
	breach, job_id, seq, at, application, old_status, new_status, old_fence, new_fence, old_cursor, new_cursor), e'\n' ORDER BY seq), '')
  FROM judged WHERE breach IS NOT NULL`

// breaches judges the ledger: I3, I5, I6 and I7 over every change that was
// committed. Empty means that none was broken.
func (b *bundle) breaches(t *testing.T) string {
	t.Helper()
	var legal []string
	for pair := range job.Transitions() {
		legal = append(legal, fmt.Sprintf("'%s>%s'", pair[0], pair[1]))
	}
	return one[string](t, b, fmt.Sprintf(breachSQL, strings.Join(legal, ",")))
}

func (b *bundle) requireLedger(t *testing.T) {
	t.Helper()
	require.Empty(t, b.breaches(t))
}
