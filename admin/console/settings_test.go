package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The index has the values of the settings, and links to the acts that the role may do.
func TestSettings_ShowsValuesAndWhereToChangeThem(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	p := h.as(t, "viewer").get(t, "/settings")
	require.Equal(t, http.StatusOK, p.status, p.text)
	for _, says := range []string{"No category demands an approval.", "Priority at least -10, at most 0", "There is no segment yet.", "There is no user yet."} {
		require.Contains(t, p.text, says)
	}
	require.NotContains(t, p.text, "Change…")
	for _, sql := range []string{
		`UPDATE belfry.categories SET quiet_start = '21:00', quiet_end = '08:00', cap = 3, cap_window = '1 day', max_recipients = 100000, approval_above = 5000 WHERE name = 'operator_notice'`,
		`UPDATE belfry.categories SET approval_above = 0 WHERE name = 'popular_content'`,
		`UPDATE belfry.limits SET priority = 100, min_priority = -5, duty_cycle = 0.5`,
		`INSERT INTO belfry.segments (name, description) VALUES ('testers', 'who test')`,
		`INSERT INTO belfry.users (name, role, created_by, password) VALUES ('ann', 'operator', 'x', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY')`,
		`SELECT belfry.pause_lane('night', 'ann', 'x')`,
		`INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by) VALUES ('inbox', 'operator_notice', 'Waits', true, 'kim')`,
	} {
		h.exec(t, sql)
	}
	p = h.as(t, "admin").get(t, "/settings")
	for _, says := range []string{
		"push · quiet 21:00-08:00 · at most 3 in 1 d · up to 100,000 recipients", "above 5,000 recipients", "each job", "1 job waiting",
		"Priority at least -5, at most 100", "at most 50 %", "who test · 0 members", "ann operator", "Paused by ann",
	} {
		require.Contains(t, p.text, says)
	}
	require.Subset(t, p.links(), []string{"/categories/operator_notice/set", "/lanes/night/resume", "/limits/set", "/users/ann/set", "/new/tokens/create", "/jobs?awaiting_approval=on", "/operations"})
}
