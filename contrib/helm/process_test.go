package helm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// belfry is the program: BELFRY_TEST_PROGRAM, or one that is built here.
func belfry(t *testing.T) string {
	t.Helper()
	if file := os.Getenv("BELFRY_TEST_PROGRAM"); file != "" {
		return file
	}
	file := filepath.Join(t.TempDir(), "belfry")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/belfry")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// noSecrets matches the lines of `belfry config check` if only files of Secrets are missing.
var noSecrets = regexp.MustCompile(
	`^belfry: configuration: \d+ problems$|_file: (stat |open )?/etc/belfry/secrets/\S+: no such file or directory$`)

// belfry accepts each part's configuration, except that the files of Secrets are not here, its
// variables, and its arguments.
func TestChart_BelfryAcceptsConfigurationAndArguments(t *testing.T) {
	t.Parallel()
	program := belfry(t)
	for name, values := range examples(t) {
		all := objects(t, values)
		for key, object := range all {
			pod := podOf(object)
			if pod == nil {
				continue
			}
			at := name + ": " + key
			config, ok := all["ConfigMap "+pod.Spec.Volumes[0].ConfigMap.Name].(*corev1.ConfigMap)
			require.True(t, ok, at)
			file := filepath.Join(t.TempDir(), "belfry.yaml")
			require.NoError(t, os.WriteFile(file, []byte(config.Data["belfry.yaml"]), 0o600))
			c := pod.Spec.Containers[0]
			here := strings.NewReplacer("/etc/belfry/config/belfry.yaml", file, "&sslrootcert=/etc/belfry/database/ca.crt", "")
			var environ []string
			for _, v := range c.Env {
				environ = append(environ, v.Name+"="+here.Replace(v.Value))
			}

			check := exec.CommandContext(t.Context(), program, "config", "check")
			check.Env = environ
			out, err := check.CombinedOutput()
			if err != nil {
				for line := range strings.Lines(string(out)) {
					require.Regexp(t, noSecrets, strings.TrimSpace(line), "%s: %s", at, out)
				}
			}

			help := exec.CommandContext(t.Context(), program, append(c.Args, "--help")...)
			help.Env = environ
			out, err = help.CombinedOutput()
			require.NoError(t, err, "%s: %s", at, out)
			require.Contains(t, string(out), "belfry "+c.Args[0], at)
		}
	}
}
