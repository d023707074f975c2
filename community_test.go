package belfry_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// workflow has the parts of a workflow of GitHub that these tests check. `make lint` checks the rest
// with actionlint.
type workflow struct {
	Permissions map[string]string      `yaml:"permissions"`
	Jobs        map[string]workflowJob `yaml:"jobs"`
}

type workflowJob struct {
	Timeout  int `yaml:"timeout-minutes"`
	Strategy struct {
		Matrix struct {
			Version []int `yaml:"version"`
		} `yaml:"matrix"`
	} `yaml:"strategy"`
	Steps []struct {
		Run string `yaml:"run"`
	} `yaml:"steps"`
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	paths, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]workflow{}
	for _, path := range paths {
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(readFile(t, path)), &w), path)
		all[filepath.Base(path)] = w
	}
	return all
}

var (
	makeTarget = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	ciScript   = regexp.MustCompile(`\.ci/[a-z-]+`)
	expression = regexp.MustCompile(`\$\{\{[^}]*}}`)
)

// Each workflow grants no right by default except to read, bounds each job's time, and runs existing
// targets and scripts. A shell script contains no expression that an author of a pull request can set.
func TestCommunity_WorkflowsRunExistingTargets(t *testing.T) {
	t.Parallel()
	makefile := readFile(t, "Makefile")
	found := 0
	for name, w := range workflows(t) {
		require.Equal(t, map[string]string{"contents": "read"}, w.Permissions, name)
		for id, job := range w.Jobs {
			require.NotZero(t, job.Timeout, "%s: %s", name, id)
			for _, step := range job.Steps {
				for _, m := range makeTarget.FindAllStringSubmatch(step.Run, -1) {
					require.Regexp(t, `(?m)^`+m[1]+`:`, makefile, "%s: %s", name, step.Run)
					found++
				}
				for _, script := range ciScript.FindAllString(step.Run, -1) {
					require.FileExists(t, script, name)
				}
				for _, e := range expression.FindAllString(step.Run, -1) {
					require.Equal(t, "${{ matrix.version }}", e, "%s: %s", name, step.Run)
				}
			}
		}
	}
	require.Greater(t, found, 5)
}

// Continuous integration, make test-postgres and SUPPORT.md have the same versions of PostgreSQL.
func TestCommunity_VersionsOfPostgreSQLAgree(t *testing.T) {
	t.Parallel()
	var versions []string
	for _, v := range workflows(t)["ci.yml"].Jobs["postgres"].Strategy.Matrix.Version {
		versions = append(versions, strconv.Itoa(v))
	}
	require.NotEmpty(t, versions)
	require.Contains(t, readFile(t, "Makefile"), ".ci/test-postgres $(or $(POSTGRES),"+strings.Join(versions, " ")+")")
	require.Contains(t, readFile(t, "SUPPORT.md"), "| PostgreSQL | "+strings.Join(versions, ", ")+" |")
}

// A release is built as `make build` builds: with the same flags of the compiler and the linker.
func TestCommunity_ReleaseIsBuiltAsByMake(t *testing.T) {
	t.Parallel()
	var release struct {
		Builds []struct {
			GCFlags []string `yaml:"gcflags"`
			LDFlags []string `yaml:"ldflags"`
		} `yaml:"builds"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, ".goreleaser.yaml")), &release))
	require.Len(t, release.Builds, 1)
	ldflags := strings.NewReplacer("{{ .Summary }}", "$(VERSION)", "{{ .FullCommit }}", "$(COMMIT)").Replace(strings.Join(release.Builds[0].LDFlags, " "))
	require.Contains(t, readFile(t, "Makefile"), "\nGCFLAGS = -gcflags="+strings.Join(release.Builds[0].GCFlags, " -gcflags=")+"\nLDFLAGS = "+ldflags+"\n")
}

// issueForm is an issue form of GitHub; unknown keys are errors.
type issueForm struct {
	Name        string   `yaml:"name"`
	Description string   `yaml:"description"`
	Labels      []string `yaml:"labels"`
	Body        []struct {
		Type       string `yaml:"type"`
		ID         string `yaml:"id"`
		Attributes struct {
			Label       string `yaml:"label"`
			Description string `yaml:"description"`
			Value       string `yaml:"value"`
			Render      string `yaml:"render"`
			Options     []any  `yaml:"options"`
		} `yaml:"attributes"`
		Validations struct {
			Required bool `yaml:"required"`
		} `yaml:"validations"`
	} `yaml:"body"`
}

// The issue forms have the shape that GitHub accepts: a form that it rejects is not offered.
func TestCommunity_IssueFormsAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bug", "feature"} {
		var form issueForm
		decoder := yaml.NewDecoder(strings.NewReader(readFile(t, ".github/ISSUE_TEMPLATE/"+name+".yml")))
		decoder.KnownFields(true)
		require.NoError(t, decoder.Decode(&form), name)
		require.NotEmpty(t, form.Name, name)
		require.NotEmpty(t, form.Description, name)
		var ids []string
		for _, part := range form.Body {
			require.Contains(t, []string{"markdown", "textarea", "input", "dropdown", "checkboxes"}, part.Type, name)
			if part.Type == "markdown" {
				require.NotEmpty(t, part.Attributes.Value, name)
				continue
			}
			require.Regexp(t, `^[a-z-]+$`, part.ID, name)
			require.NotContains(t, ids, part.ID, name)
			require.NotEmpty(t, part.Attributes.Label, name)
			require.Equal(t, part.Type == "dropdown" || part.Type == "checkboxes", len(part.Attributes.Options) > 0, "%s: %s", name, part.ID)
			ids = append(ids, part.ID)
		}
		require.NotEmpty(t, ids, name)
		if name == "bug" {
			require.Contains(t, ids, "doctor")
		}
	}
	var chooser struct {
		Blank *bool `yaml:"blank_issues_enabled"`
		Links []struct {
			Name  string `yaml:"name"`
			URL   string `yaml:"url"`
			About string `yaml:"about"`
		} `yaml:"contact_links"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(readFile(t, ".github/ISSUE_TEMPLATE/config.yml")))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&chooser))
	for _, l := range chooser.Links {
		require.NotEmpty(t, l.About, l.Name)
		if path, ok := strings.CutPrefix(l.URL, "https://github.com/belfryhq/belfry/blob/main/"); ok {
			require.FileExists(t, path)
		}
	}
}

// The development container installs what .ci/install can install.
func TestCommunity_DevelopmentContainerIsValid(t *testing.T) {
	t.Parallel()
	var container struct {
		Build struct {
			Dockerfile string `json:"dockerfile"`
		} `json:"build"`
		PostCreate string `json:"postCreateCommand"`
	}
	require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(readFile(t, ".devcontainer/devcontainer.json")))).Decode(&container))
	require.FileExists(t, filepath.Join(".devcontainer", container.Build.Dockerfile))
	programs := strings.Fields(regexp.MustCompile(`^\.ci/install ([a-z ]+) && make build$`).FindStringSubmatch(container.PostCreate)[1])
	for _, program := range programs {
		require.Regexp(t, `(?m)^\s+`+program+`\)`, readFile(t, ".ci/install"))
	}
	require.True(t, slices.Contains(programs, "postgres"))
}
