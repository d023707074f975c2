package metrics

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prometheus's own tool takes the rules, where it is installed; it is part of Prometheus. What belfry
// can check itself is checked everywhere (monitoring_test.go).
func TestMonitoring_PromtoolTakesTheAlerts(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("promtool is not installed, so that docs/monitoring/alerts.yaml is not checked by it: %v", err)
	}
	said, err := exec.CommandContext(t.Context(), promtool, "check", "rules", monitoring+"alerts.yaml").CombinedOutput()
	require.NoError(t, err, "%s", said)
}
