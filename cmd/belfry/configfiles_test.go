package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// Files given later win, key by key; senders and schedules add up by their names.
func TestConfig_SeveralFilesAddUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	platforms := map[string]string{"one": "ios", "two": "android", "three": "web"}
	hook := func(name, path string) string {
		return fmt.Sprintf("{name: %s, kind: webhook, platforms: [%s], webhook: {url: https://example.com/%s, secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}}", name, platforms[name], path)
	}
	base := write("base.yaml", "log: {level: error, format: json}\nrunner: {lanes: [a, b]}\nsenders:\n  - "+hook("one", "1")+"\n  - "+hook("two", "2")+"\n")
	none := write("none.yaml", "senders: []\nschedules: []\n")
	more := write("more.yaml", "log: {level: warn}\nrunner: {lanes: [c]}\nsenders:\n  - "+hook("two", "changed")+"\n  - "+hook("three", "3")+"\n")
	r := command(t, nil, "--config", base, "--config", none, "--config", more, "config", "check")
	require.Equal(t, fmt.Sprintf("ok: %s, %s, %s read, 5 keys set, the rest at defaults\n", base, none, more), r.stdout, r.stderr)

	s, err := settings.Load(config.Input{Files: []string{base, none, more}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"warn", "json", "c"}, []string{s.Log.Level, s.Log.Format, strings.Join(s.Runner.Lanes, ",")})
	require.Equal(t, []string{"one", "two", "three"}, s.Senders.Names())
	require.Equal(t, "https://example.com/changed", s.Senders[1].Settings.(*provider.WebhookConfig).URL)
	require.Equal(t, []string{base + ":3, " + more + ":3", base + ":4", more + ":4", more + ":5"}, []string{
		s.Source("senders").String(), s.Source("senders[0]").String(), s.Source("senders[1]").String(), s.Source("senders[2]").String(),
	})

	s, err = settings.Load(config.Input{Files: []string{base}, Environ: []string{"BELFRY_SENDERS=" + sample(t, keys.Key{Name: "senders"})}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"hook"}, s.Senders.Names(), "a variable replaces the whole list")
	_, err = settings.Load(config.Input{Files: []string{base}, Environ: []string{`BELFRY_SENDERS=[{"name": "Hook", "kind": "pigeon"}]`}}, nil)
	require.ErrorContains(t, err, `BELFRY_SENDERS: senders[0].kind: "pigeon" is not allowed`)

	twice := write("twice.yaml", "senders:\n  - "+hook("one", "1")+"\n  - "+hook("one", "2")+"\n")
	_, err = settings.Load(config.Input{Files: []string{more, twice}}, nil)
	require.ErrorContains(t, err, twice+`:3: senders[3].name: "one" is the name of senders[2] too`)
}

// Files that a configuration file names are relative to it, wherever belfry is started; those of
// variables are relative to the working directory.
func TestConfig_FilesAreRelativeToTheFileThatNamesThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hook"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600))
	path := filepath.Join(dir, "belfry.yaml")
	const text = "api: {unsubscribe_keys_file: keys}\nsenders:\n  - {name: one, kind: webhook, platforms: [ios], webhook: {url: https://example.com/1, secret_file: %s}}\n"
	for _, name := range []string{"hook", "./hook", filepath.Join(dir, "hook")} {
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, text, name), 0o600))
		s, err := settings.Load(config.Input{Files: []string{path}}, nil)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "hook"), s.Senders[0].Settings.(*provider.WebhookConfig).SecretFile)
		require.Equal(t, filepath.Join(dir, "keys"), s.API.UnsubscribeKeysFile)
	}
	s, err := settings.Load(config.Input{Files: []string{path}, Environ: []string{"BELFRY_API_UNSUBSCRIBE_KEYS_FILE=mine"}}, nil)
	require.NoError(t, err)
	require.Equal(t, "mine", s.API.UnsubscribeKeysFile)
}

// One run of config check finds what is wrong anywhere: the keys of one schedule hide
// neither the cron of another nor the file that a sender names.
func TestConfig_CheckFindsSecretFilesAndCronsWithTheRest(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "--config", filepath.Join("testdata", "secrets.yaml"), "config", "check")
	require.Equal(t, codeConfiguration, r.code)
	dbtest.Golden(t, filepath.Join("testdata", "secrets.golden"), r.stderr)
	for _, delivers := range [][]string{{"relay"}, {"daemon"}, {"run", "--deliver"}} {
		r := command(t, nil, append(delivers, "--config", filepath.Join("testdata", "secrets.yaml"))...)
		require.Equal(t, codeConfiguration, r.code)
		dbtest.Golden(t, filepath.Join("testdata", "secrets.golden"), r.stderr)
	}

	// Whoever may not read them can do everything else.
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte("senders:\n  - {name: a, kind: fcm, fcm: {service_account_file: /no/such}}\n"), 0o600))
	_, err := settings.Load(config.Input{Files: []string{path}}, nil)
	require.NoError(t, err)
}

// Neither an unknown kind, nor a key given twice, nor a limit out of range hides what else
// is wrong with senders, nor what is wrong in the file that one names.
func TestConfig_NoProblemOfASenderHidesAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`senders:
  - {name: a, kind: pigeon, timout: 5s, concurrency: lots, pigeon: {loft: 1}, sms: {url: x}}
  - name: b
    kind: fcm
    name: c
  - {name: d, kind: fcm, concurrency: 0, burts: 1, fcm: {service_account_file: `+path+`}}
`), 0o600))
	_, err := settings.Load(config.Input{Files: []string{path}}, settings.Always)
	const allowed = "unknown key; allowed keys: abort_after, breaker, burst, concurrency, medium, name, platforms, rate_per_second, retry, timeout"
	require.EqualError(t, err, strings.ReplaceAll(`configuration: 7 problems
  FILE:2: senders[0].concurrency: "lots" is not a whole number
  FILE:2: senders[0].kind: "pigeon" is not allowed; allowed values: alimtalk, apns, fcm, sms, smtp, webhook, webpush
  FILE:2: senders[0].timout: `+allowed+`
  FILE:5: senders: mapping key "name" already defined at line 3
  FILE:6: senders[1].burts: `+allowed+`
  FILE:6: senders[1].concurrency: 0 is not allowed; allowed values: 1 to 10000
  FILE:6: senders[1].fcm: service_account: is not a JSON object; must be a service account's key in Google's JSON format`, "FILE", path))
}

// The shipped file sets the level that holds anyway, and made every command log what it
// showed already.
func TestConfig_TheShippedFileDoublesNoLine(t *testing.T) {
	t.Parallel()
	shipped := []string{filepath.Join("..", "..", config.DefaultFile)}
	for want, in := range map[string]config.Input{
		"warn":  {Files: shipped},
		"info":  {Files: shipped, Environ: []string{"BELFRY_LOG_LEVEL=info"}},
		"error": {Files: shipped, Environ: []string{"BELFRY_LOG_LEVEL=error"}},
		"debug": {Files: shipped, Flags: map[string]config.Flag{"log.level": {Name: "log-level", Value: "debug"}}},
	} {
		s, err := settings.Load(in, nil)
		require.NoError(t, err)
		require.Equal(t, want, s.LogLevel(true).String())
	}
	s, err := settings.Load(config.Input{Files: shipped}, nil)
	require.NoError(t, err)
	require.Equal(t, zerolog.InfoLevel, s.LogLevel(false), "a daemon logs")
}

// A secret that other accounts of the machine may read is no secret.
func TestConfig_NamesOpenFilesWithSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		require.NoError(t, os.Chmod(path, mode)) // whatever the umask is
		return path
	}
	password := write("password", "secret", 0o604)
	certificate(t, dir, 1)
	require.NoError(t, os.Chmod(filepath.Join(dir, "cert.pem"), 0o644))
	open := write("open.yaml", "senders: [{name: hook, kind: webhook, webhook: {url: https://example.com/x, secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}}]\n", 0o640)
	mail := write("mail.yaml", "senders: [{name: mail, kind: smtp, smtp: {host: mx.example, from: a@example.com, username: u, password_file: password, ca_file: cert.pem}}]\n", 0o644)
	private := write("private.yaml", "database: {url: 'postgres://u:secret@db.example/app'}\n", 0o600)
	args := []string{"--config", open, "--config", mail, "--config", private, "config", "check"}
	r := command(t, nil, args...)
	require.Equal(t, codeDone, r.code, r.stderr)
	lines := func(files ...string) (text string) {
		for _, f := range files {
			text += f + " has a secret, and other accounts of this machine may read it: chmod 600 " + f + "\n"
		}
		return text
	}
	require.Equal(t, lines(open, password), r.stderr, "an authority is public")
	var report struct {
		OpenFiles []string `json:"open_files"`
	}
	require.NoError(t, json.Unmarshal([]byte(command(t, nil, append(args, "-o", "json")...).stdout), &report))
	require.Equal(t, []string{open, password}, report.OpenFiles)
	doctor := command(t, []string{"BELFRY_DATABASE_URL=" + dbtest.Reused(t, 4).DSN}, "--config", open, "--config", mail, "doctor")
	for _, file := range []string{open, password} {
		require.Contains(t, strings.Join(strings.Fields(doctor.stdout), " "), "warning files "+file+" has a secret", doctor.stderr)
	}
	require.NoError(t, os.Chmod(private, 0o644))
	require.Equal(t, lines(open, password, private), command(t, nil, args...).stderr)
	for _, f := range []string{open, password, private} {
		require.NoError(t, os.Chmod(f, 0o600))
	}
	require.Empty(t, command(t, nil, args...).stderr, "mail.yaml has no secret of its own")
}
