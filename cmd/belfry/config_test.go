package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/relay"
)

// flattened lists the leaves of a YAML mapping by their dotted path.
func flattened(prefix string, section map[string]any) map[string]any {
	leaves := make(map[string]any)
	for name, value := range section {
		inner, ok := value.(map[string]any)
		if !ok {
			leaves[prefix+name] = value
			continue
		}
		for k, v := range flattened(prefix+name+".", inner) {
			leaves[k] = v
		}
	}
	return leaves
}

func TestConfigFile_EqualsDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", config.DefaultFile))
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, yaml.Unmarshal(text, &document))
	leaves := flattened("", document)
	s, err := settings.Load(config.Input{Files: []string{filepath.Join("..", "..", config.DefaultFile)}}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	values := valuesOf(s.Config)
	for _, k := range keys.Of(settings.Default()) {
		require.Contains(t, leaves, k.Name, "config.yaml does not document it")
		require.NotNil(t, leaves[k.Name], "config.yaml has no value for %s", k.Name)
		if reflect.ValueOf(k.Value).Kind() == reflect.Slice && reflect.ValueOf(k.Value).Len() == 0 {
			require.Empty(t, values[k.Name], k.Name)
		} else {
			require.Equal(t, k.Value, values[k.Name], "config.yaml has another default for %s", k.Name)
		}
		delete(leaves, k.Name)
	}
	require.Empty(t, leaves, "config.yaml has keys that do not exist")
}

// valuesOf are the values of a configuration by key.
func valuesOf(c settings.Config) map[string]any {
	values := make(map[string]any)
	for _, k := range keys.Of(c) {
		values[k.Name] = k.Value
	}
	return values
}

// decoded is the text of a key's value as its type has it.
func decoded(t *testing.T, k keys.Key, text string) any {
	t.Helper()
	var given any = text
	if strings.HasPrefix(text, "[{") {
		require.NoError(t, config.ParseJSON([]byte(text), &given))
	}
	if k.Name == "senders" {
		list, err := settings.DecodeSenders(given.([]any), relay.DefaultConfig().Retry)
		require.NoError(t, err)
		return list
	}
	into := reflect.New(reflect.TypeOf(k.Value))
	require.NoError(t, config.Decode(k.Name, given, into.Interface()))
	return into.Elem().Interface()
}

// sample is a valid value of each key that is not the default, as it is written.
func sample(t *testing.T, k keys.Key) string {
	t.Helper()
	special := map[string]string{
		"database.url":             "postgres://somebody@db.example/belfry",
		"database.max_connections": "17",
		"runner.lanes":             "night,day",
		"runner.chunk.min_rows":    "123",
		"runner.chunk.max_rows":    "45000",
		"runner.stale_after":       "31s",
		"channels.relation":        "app.users",
		"log.level":                "debug",
		"log.format":               "json",

		"runner.load.duty_cycle":           "0.25",
		"runner.load.health.chunk_latency": "2.5",
		"runner.load.health.query":         "SELECT 1",
		"runner.load.health.query_max":     "7.5",
		"abort.cache":                      "redis://cache.example/1",
		"retention.notifications":          "2160h",
		"retention.messages":               "2160h",
		"retention.jobs":                   "2160h",
		"retention.events":                 "2160h",
		"retention.samples":                "48h",
		"delivery.lease":                   "31s",
		"delivery.activity_share":          "0.3",
		"delivery.retries":                 "last",
		"delivery.transport":               "redislist",
		"delivery.nats.urls":               "nats://a.example:4222,tls://b.example",
		"delivery.nats.max_bytes":          "20000000",
		"delivery.retry.policy":            "linear",
		"delivery.retry.jitter":            "0.5",
		"delivery.time_zone":               "Asia/Seoul",
		"senders":                          `[{"name": "hook", "kind": "webhook", "webhook": {"url": "https://example.com/x", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}]`,
		"api.listen":                       "127.0.0.1:8470",
		"api.environment.colour":           "red",
		"api.public_url":                   "https://example.com/belfry",
		"api.proxy.addresses":              "10.0.0.7,10.1.0.0/16",
		"api.proxy.roles":                  "ops=operator,all=viewer",
		"api.oidc.issuer":                  "https://login.example.com/realms/x",
		"api.oidc.scopes":                  "email,groups",
		"api.oidc.roles":                   "ops=operator,all=viewer",
		"inbox.listen":                     "127.0.0.1:8471",
		"inbox.subject":                    "external_id",
		"inbox.keys":                       `[{"id": "a", "algorithm": "HS256", "key_file": "/etc/belfry/a"}]`,
		"inbox.origins":                    "https://www.example.com",
		"inbox.proxies":                    "10.0.0.7,10.1.0.0/16",
		"inbox.rate_per_second":            "2.5",
		"metrics.listen":                   "127.0.0.1:9464",
		"schedules":                        `[{"name": "digest", "cron": "0 9 * * *", "time_zone": "Asia/Seoul", "template": {"types": ["inbox"], "category": "popular_content", "title": "Ten things", "data": {"postId": "p7"}}}]`,
	}
	if v, ok := special[k.Name]; ok {
		return v
	}
	switch d := k.Value.(type) {
	case bool:
		return fmt.Sprint(!d)
	case int:
		return fmt.Sprint(d + 1)
	case time.Duration:
		return (d + time.Millisecond).String()
	case string:
		return "other"
	}
	t.Fatalf("no sample for %s: add one", k.Name)
	return ""
}

func TestConfig_EveryKeyByEnvironmentAndByFile(t *testing.T) {
	t.Parallel()
	for _, k := range keys.Of(settings.Default()) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			text := sample(t, k)
			want := decoded(t, k, text)
			require.False(t, reflect.DeepEqual(k.Value, want), "the sample is the default")

			s, err := settings.Load(config.Input{Environ: []string{k.Variable + "=" + text}}, nil)
			require.NoError(t, err)
			require.Equal(t, want, valuesOf(s.Config)[k.Name])
			require.Equal(t, want, field(s.Config, k.Name), "the struct has another value")
			require.Equal(t, config.Source{Kind: config.FromEnvironment, Name: k.Variable}, s.Source(k.Name))

			path := filepath.Join(t.TempDir(), "belfry.yaml")
			require.NoError(t, os.WriteFile(path, []byte(nested(k.Name, text)), 0o600))
			s, err = settings.Load(config.Input{Environ: []string{config.FileVariable + "=" + path}}, nil)
			require.NoError(t, err)
			if strings.HasSuffix(k.Name, "_file") {
				want = filepath.Join(filepath.Dir(path), text)
			}
			require.Equal(t, want, field(s.Config, k.Name))
			require.Equal(t, config.FromFile, s.Source(k.Name).Kind)
		})
	}
}

// field finds a key's value in the struct.
func field(c settings.Config, key string) any {
	v := reflect.ValueOf(c)
	for part := range strings.SplitSeq(key, ".") {
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Tag.Get("mapstructure") == part || strings.EqualFold(f.Name, part) {
				v = v.Field(i)
				break
			}
			if found := squashed(v.Field(i), v.Type().Field(i), part); found.IsValid() {
				v = found
				break
			}
		}
	}
	return v.Interface()
}

// squashed finds a key among the fields of a struct whose keys stand in the section
// around it.
func squashed(v reflect.Value, f reflect.StructField, key string) reflect.Value {
	if f.Tag.Get("mapstructure") != ",squash" {
		return reflect.Value{}
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("mapstructure") == key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// nested writes a dotted key as YAML sections. A list is written as one text.
func nested(key, value string) string {
	var b strings.Builder
	parts := strings.Split(key, ".")
	for i, part := range parts {
		b.WriteString(strings.Repeat("  ", i) + part + ":")
		if i < len(parts)-1 {
			b.WriteString("\n")
		}
	}
	return b.String() + " " + value + "\n"
}

func TestConfig_FlagOverridesEnvironmentOverridesFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte("log: {level: error, format: json}\nrunner: {lanes: [a, b]}\n"), 0o600))
	in := config.Input{Files: []string{path}, Environ: []string{"BELFRY_LOG_LEVEL=warn", "BELFRY_LOG_FORMAT="}}
	s, err := settings.Load(in, nil)
	require.NoError(t, err)
	require.Equal(t, "warn", s.Log.Level)
	require.Equal(t, "json", s.Log.Format, "an empty variable is not set")
	require.Equal(t, []string{"a", "b"}, s.Runner.Lanes)
	require.Equal(t, path+":1", s.Source("log.format").String())

	in.Flags = map[string]config.Flag{"log.level": {Name: "log-level", Value: "debug"}}
	s, err = settings.Load(in, nil)
	require.NoError(t, err)
	require.Equal(t, "debug", s.Log.Level)
	require.Equal(t, "--log-level", s.Source("log.level").String())
}

// The watchdog's and the tests' variables are no configuration.
func TestConfig_LeavesForeignVariablesAlone(t *testing.T) {
	t.Parallel()
	_, err := settings.Load(config.Input{Environ: []string{
		"BELFRY_TEST_DATABASE_URL=x", "BELFRY_PGSERVER_WATCHDOG=1", "BELFRYX=1", "PATH=/bin",
	}}, nil)
	require.NoError(t, err)
}

// TestConfig_BadFiles wants the problems of each file of testdata/config listed
// in the golden file beside it.
func TestConfig_BadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "config", "*.yaml"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			r := command(t, nil, "--config", path, "config", "check")
			require.Equal(t, codeConfiguration, r.code)
			require.Empty(t, r.stdout)
			dbtest.Golden(t, strings.TrimSuffix(path, ".yaml")+".golden", r.stderr)
		})
	}
}

func TestConfig_BadEnvironment(t *testing.T) {
	t.Parallel()
	r := command(t, []string{
		"BELFRY_RUNER_STALE_AFTER=1m", "BELFRY_RUNNER_CHUNK_MAX_ROWS=many", "BELFRY_RUNNER_LISTEN=yes",
		"BELFRY_LOG_LEVEL=loud", "BELFRY_RUNNER_RETRY_LIMIT=-1", "BELFRY_SOMETHING=1", "BELFRY_SCHEDULES=digest",
		"BELFRY_DATABASE_URL=postgres://u:secret@h:port/db",
	}, "jobs", "list")
	require.Equal(t, codeConfiguration, r.code)
	require.Empty(t, r.stdout)
	require.NotContains(t, r.stderr, "secret")
	dbtest.Golden(t, filepath.Join("testdata", "config", "environment.golden"), r.stderr)
}

func TestConfig_MissingFile(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "--config", filepath.Join("testdata", "no-such.yaml"), "config", "check")
	require.Equal(t, codeConfiguration, r.code)
	require.Equal(t, "belfry: configuration: --config: testdata/no-such.yaml: no such file or directory\n", r.stderr)
}

// What only a flag says wrongly is a matter of usage.
func TestConfig_BadFlagIsUsage(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "--log-level", "loud", "config", "check")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, `--log-level: log.level: "loud" is not allowed; allowed values: debug, info, warn, error`)
}

func TestConfig_PasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://ann:secret@db.example:5432/app?sslmode=require":      "postgres://ann@db.example:5432/app?sslmode=require",
		"postgresql://ann:s%40cret@db.example/app?password=secret":       "postgresql://ann@db.example/app",
		"host=db.example password=secret dbname=app":                     "host=db.example password=... dbname=app",
		`host=db.example password='se\'cret x' dbname=app`:               "host=db.example password=... dbname=app",
		`user=ann PASSWORD = secret\ x sslpassword=secret`:               "user=ann PASSWORD=... sslpassword=...",
		"postgres://db.example/app":                                      "postgres://db.example/app",
		"postgres://ann:secret@[::1/app":                                 "(not shown: not a URL)",
		"postgres://ann@db.example/app?sslpassword=secret&sslmode=allow": "postgres://ann@db.example/app?sslmode=allow",
	} {
		require.Equal(t, want, settings.WithoutPassword(dsn))
	}
	r := command(t, []string{"BELFRY_DATABASE_URL=postgres://ann:s3cret@db.example/app"}, "config", "show", "--json")
	require.Equal(t, codeDone, r.code)
	require.NotContains(t, r.stdout, "s3cret")
	require.Contains(t, r.stdout, "postgres://ann@db.example/app")
}

// Where the password of a cache may be, nothing is shown.
func TestConfig_TheCachesPasswordIsNotShown(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                      "",
		"redis://:secret@cache.example:6379/1":  "redis://cache.example:6379/1",
		"rediss://ann:secret@cache.example":     "rediss://cache.example",
		"redis://secret@cache.example":          "redis://cache.example",
		"unix://:secret@/run/redis.sock?db=2":   "unix:///run/redis.sock?db=2",
		"secret@cache.example":                  "(not shown: not a URL)",
		"redis:secret@cache.example":            "(not shown: not a URL)",
		"redis://cache.example:6379:secret/%zz": "(not shown: not a URL)",
	} {
		require.Equal(t, want, settings.WithoutUser(url))
	}
	sentinels := "redis://:secret@a.example?addr=b.example:26379&sentinel_username=ann&sentinel_password=secret"
	require.Equal(t, "redis://a.example?addr=b.example%3A26379", settings.WithoutUser(sentinels))
	r := command(t, []string{"BELFRY_ABORT_CACHE=redis://:s3cret@cache.example"}, "config", "show", "--json")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.NotContains(t, r.stdout, "s3cret")
	require.Contains(t, r.stdout, "redis://cache.example")
}

// Schedules pass as they were written: viper would lower the case of their keys.
func TestConfig_SchedulesKeepTheirKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
schedules:
  - name: digest
    cron: "*/5 * * * *"
    template: {type: inbox, category: popular_content, title: Ten, data: {postId: 9007199254740993}, audience: {kind: everyone}}
  - name: popular
    every: 6h
    query: SELECT title FROM posts
    template:
      types: [inbox, push]
      category: popular_content
`), 0o600))
	s, err := settings.Load(config.Input{Files: []string{path}}, nil)
	require.NoError(t, err)
	require.Equal(t, "[digest, popular]", settings.Shown{Value: s.Schedules}.Text())
	text, err := json.Marshal(s.Schedules[0].Template.Data)
	require.NoError(t, err)
	require.JSONEq(t, `{"postId": 9007199254740993}`, string(text))
	require.Equal(t, path+":2", s.Source("schedules").String())
	require.Equal(t, path+":6", s.Source("schedules[1]").String())

	s, err = settings.Load(config.Input{Environ: []string{`BELFRY_SCHEDULES=[{"name": "digest", "every": "1h", "template": {"type": "inbox", "category": "x", "title": "y", "data": {"postId": 9007199254740993}}}]`}}, nil)
	require.NoError(t, err)
	text, err = json.Marshal(s.Schedules[0].Template.Data)
	require.NoError(t, err)
	require.JSONEq(t, `{"postId": 9007199254740993}`, string(text))
}
