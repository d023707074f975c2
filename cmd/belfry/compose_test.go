package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// composeFile is a compose file after its interpolation.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Profiles    []string
		Healthcheck struct{ Test []string }
	}
	Configs map[string]struct{ Content string }
}

// readCompose reads compose.yaml with COMPOSE_PROFILES set to a carrier, or unset if it is "".
func readCompose(t *testing.T, carrier string) (c composeFile) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, composePath))
	require.NoError(t, err)
	const variable = "${COMPOSE_PROFILES:-postgres}"
	require.Equal(t, 1, strings.Count(string(text), variable))
	require.Equal(t, 1, strings.Count(string(text), "${"))
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), variable, cmp.Or(carrier, "postgres"))), &c))
	return c
}

const composePath = "contrib/compose/compose.yaml"

// The compose file conforms to the Compose Specification.
func TestContrib_ComposeConformsToItsSpecification(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/dist/go.mod", "github.com/compose-spec/compose-go/v2/cmd", composePath)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The commands of the compose file exist, its configuration is valid, and each carrier starts its server.
func TestContrib_ComposeStartsCommands(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"": "postgres", "redislist": "redis", "redisstream": "redis", "jetstream": "nats"}
	for carrier, server := range servers {
		c := readCompose(t, carrier)
		require.Contains(t, c.Services, server)
		found := 0
		for name, service := range c.Services {
			if service.Image != "belfry" {
				continue
			}
			found++
			requireCommand(t, service.Command)
			if test := service.Healthcheck.Test; len(test) > 0 {
				require.Equal(t, []string{"CMD", "/usr/bin/belfry"}, test[:2])
				requireCommand(t, test[2:])
			}
			var environ []string
			for key, value := range service.Environment {
				environ = append(environ, key+"="+value)
			}
			r := command(t, environ, "config", "check")
			require.Equal(t, codeDone, r.code, "%s: %s", name, r.stderr)
		}
		require.Equal(t, 3, found)
		if carrier != "" {
			require.Contains(t, c.Services[server].Profiles, carrier)
			require.Equal(t, carrier, c.Services["daemon"].Environment["BELFRY_DELIVERY_TRANSPORT"])
		}
	}
}

// Prometheus accepts the configuration of the compose file, with the alerts of docs/monitoring.
func TestContrib_PrometheusIsConfigured(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	dir := t.TempDir()
	alerts, err := os.ReadFile(filepath.Join(tree, "docs", "monitoring", "alerts.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), alerts, 0o600))
	path := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(path, []byte(readCompose(t, "").Configs["prometheus"].Content), 0o600))
	printed(t, promtool, "check", "config", path)
}
