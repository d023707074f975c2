// Package helm_test checks the chart as `helm lint` and `helm template` do, decodes each object strictly
// into its Kubernetes type, and has belfry read the configuration and the arguments.
package helm_test

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// dir is the chart.
const dir = "belfry"

// serviceMonitor has the fields of the Prometheus operator's type that the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port        string `json:"port"`
			Path        string `json:"path"`
			Interval    string `json:"interval"`
			Relabelings []struct {
				Action      string `json:"action"`
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// newObject returns an empty object of a kind, or nil.
func newObject(kind string) metav1.Object {
	switch kind {
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	case "v1 Service":
		return &corev1.Service{}
	case "v1 Pod":
		return &corev1.Pod{}
	case "apps/v1 Deployment":
		return &appsv1.Deployment{}
	case "batch/v1 Job":
		return &batchv1.Job{}
	case "batch/v1 CronJob":
		return &batchv1.CronJob{}
	case "policy/v1 PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &serviceMonitor{}
	}
	return nil
}

// readValues returns the values of a file.
func readValues(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &values))
	return values
}

// readme returns the values of the README's example.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "```text\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	return block
}

// examples are the values files, by name.
func examples(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{"README.md": readValues(t, readme(t))}
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range paths {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[filepath.Base(file)] = readValues(t, string(text))
	}
	require.Len(t, all, 4)
	return all
}

// render returns the rendered files.
func render(ctx context.Context, values map[string]any) (map[string]string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "belfry", Namespace: "apps", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{}.RenderWithContext(ctx, chart, all)
}

var separator = regexp.MustCompile(`(?m)^---\n`)

// objects renders the chart, and decodes each object strictly. The key is kind and name.
func objects(t *testing.T, values map[string]any) map[string]metav1.Object {
	t.Helper()
	files, err := render(t.Context(), values)
	require.NoError(t, err)
	all := map[string]metav1.Object{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for _, text := range separator.Split(files[file], -1) {
			if strings.TrimSpace(text) == "" {
				continue
			}
			var head metav1.TypeMeta
			require.NoError(t, yaml.Unmarshal([]byte(text), &head), "%s:\n%s", file, text)
			if head.Kind == "" {
				continue // a comment alone
			}
			object := newObject(head.APIVersion + " " + head.Kind)
			require.NotNil(t, object, "%s: kind %s", file, head.Kind)
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), object), "%s:\n%s", file, text)
			key := head.Kind + " " + object.GetName()
			require.NotContains(t, all, key)
			all[key] = object
		}
	}
	return all
}

// podOf returns the pod template of an object, or nil.
func podOf(object metav1.Object) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// `helm lint` has no remark.
func TestChart_Lints(t *testing.T) {
	t.Parallel()
	for name, values := range examples(t) {
		require.Empty(t, lint.RunAll(dir, values, "apps").Messages, name)
	}
}

// Each example renders the expected objects. Labels and names are those that Kubernetes accepts.
func TestChart_ObjectsAreValid(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"minimal.yaml": {"ConfigMap belfry", "ConfigMap belfry-migrate", "Deployment belfry-daemon", "Job belfry-migrate",
			"NetworkPolicy belfry", "Pod belfry-doctor", "PodDisruptionBudget belfry-daemon", "Service belfry-metrics"},
		"cron.yaml": {"ConfigMap belfry", "CronJob belfry-run", "Pod belfry-doctor", "Service belfry-metrics"},
		"everything.yaml": {"ConfigMap belfry", "ConfigMap belfry-migrate", "CronJob belfry-run", "Deployment belfry-daemon",
			"Deployment belfry-relay", "Job belfry-migrate", "NetworkPolicy belfry", "Pod belfry-doctor",
			"PodDisruptionBudget belfry-daemon", "PodDisruptionBudget belfry-relay", "Service belfry-api", "Service belfry-inbox",
			"Service belfry-metrics", "ServiceMonitor belfry"},
		"README.md": {"ConfigMap belfry", "ConfigMap belfry-migrate", "Deployment belfry-daemon", "Job belfry-migrate",
			"NetworkPolicy belfry", "Pod belfry-doctor", "PodDisruptionBudget belfry-daemon", "Service belfry-api",
			"Service belfry-metrics", "ServiceMonitor belfry"},
	}
	for name, values := range examples(t) {
		all := objects(t, values)
		require.Equal(t, want[name], slices.Sorted(maps.Keys(all)), name)
		for key, object := range all {
			for label, value := range object.GetLabels() {
				require.Regexp(t, `^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`, value, "%s: %s: %s", name, key, label)
			}
		}
	}
}

// No process has more rights than it needs, and no secret is in a variable.
func TestChart_PodsAreRestricted(t *testing.T) {
	t.Parallel()
	for name, values := range examples(t) {
		for key, object := range objects(t, values) {
			pod := podOf(object)
			if pod == nil {
				continue
			}
			at := name + ": " + key
			s := pod.Spec
			require.False(t, *s.AutomountServiceAccountToken, at)
			require.False(t, *s.EnableServiceLinks, "%s: variables such as BELFRY_PORT are unknown settings", at)
			require.True(t, *s.SecurityContext.RunAsNonRoot, at)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, s.SecurityContext.SeccompProfile.Type, at)
			require.Equal(t, name != "cron.yaml", s.SecurityContext.RunAsUser != nil && s.SecurityContext.FSGroup != nil, at)
			require.Len(t, s.Containers, 1, at)
			c := s.Containers[0]
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, at)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, at)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, at)
			require.False(t, c.Resources.Requests.Cpu().IsZero(), at)
			require.False(t, c.Resources.Limits.Memory().IsZero(), at)
			require.Empty(t, c.EnvFrom, at)
			for _, v := range c.Env {
				require.Nil(t, v.ValueFrom, "%s: %s", at, v.Name)
				require.Contains(t, []string{"BELFRY_CONFIG", "BELFRY_DATABASE_URL", "PGPASSFILE", "GOMEMLIMIT"}, v.Name, at)
				if v.Name == "GOMEMLIMIT" {
					require.Regexp(t, `^[1-9]\d*MiB$`, v.Value, at)
				}
			}
		}
	}
}

// A pod is killed only after its process had the time that it needs to stop: the grace period, the time
// of the HTTP API (40 s), and the pause of preStop.
func TestChart_ProcessesHaveTimeToStop(t *testing.T) {
	t.Parallel()
	for name, values := range examples(t) {
		all := objects(t, values)
		grace := 10
		if name == "everything.yaml" {
			grace = 30
		}
		config := all["ConfigMap belfry"].(*corev1.ConfigMap).Data["belfry.yaml"]
		var parsed struct {
			Runner, Delivery struct {
				Grace metav1.Duration `json:"grace_period"`
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(config), &parsed))
		require.InDelta(t, grace, parsed.Runner.Grace.Seconds(), 0, name)
		require.InDelta(t, grace, parsed.Delivery.Grace.Seconds(), 0, name)
		for key, object := range all {
			if pod := podOf(object); pod != nil {
				require.GreaterOrEqual(t, *pod.Spec.TerminationGracePeriodSeconds, int64(grace+40+5), "%s: %s", name, key)
			}
		}
	}
}

// Selectors select pods of the chart, ports have names that these pods have, and each mounted volume
// exists. Files that the configuration names are below a mounted directory.
func TestChart_PartsFitTogether(t *testing.T) {
	t.Parallel()
	for name, values := range examples(t) {
		all := objects(t, values)
		pods := map[string]*corev1.PodTemplateSpec{}
		for key, object := range all {
			if pod := podOf(object); pod != nil {
				pods[key] = pod
				requireVolumes(t, name+": "+key, pod.Spec, all)
			}
		}
		for key, object := range all {
			at := name + ": " + key
			switch o := object.(type) {
			case *appsv1.Deployment:
				require.Subset(t, o.Spec.Template.Labels, o.Spec.Selector.MatchLabels, at)
				c := o.Spec.Template.Spec.Containers[0]
				for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
					require.Equal(t, "metrics", probe.HTTPGet.Port.StrVal, at)
				}
				require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path, at)
				require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, at)
				require.NotContains(t, selecting(pods, o.Spec.Selector.MatchLabels), "Job belfry-migrate", at)
			case *policyv1.PodDisruptionBudget:
				want := []string{strings.Replace(key, "PodDisruptionBudget", "Deployment", 1)}
				require.Equal(t, want, selecting(pods, o.Spec.Selector.MatchLabels), at)
			case *networkingv1.NetworkPolicy:
				require.Len(t, selecting(pods, o.Spec.PodSelector.MatchLabels), len(pods), at)
			case *corev1.Service:
				port := o.Spec.Ports[0]
				require.Equal(t, name != "cron.yaml", slices.ContainsFunc(selecting(pods, o.Spec.Selector), func(key string) bool {
					return slices.ContainsFunc(pods[key].Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
						return p.Name == port.TargetPort.StrVal && p.ContainerPort == port.Port
					})
				}), at)
			case *serviceMonitor:
				require.Subset(t, all["Service belfry-metrics"].GetLabels(), o.Spec.Selector.MatchLabels, at)
				require.Equal(t, "belfry", o.Spec.Endpoints[0].Relabelings[0].Replacement, "%s: docs/monitoring/alerts.yaml has this job", at)
			}
		}
	}
}

// selecting returns the keys of the pods that labels select.
func selecting(pods map[string]*corev1.PodTemplateSpec, labels map[string]string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		matches := len(labels) > 0
		for label, value := range labels {
			matches = matches && pods[key].Labels[label] == value
		}
		if matches {
			keys = append(keys, key)
		}
	}
	return keys
}

var mentioned = regexp.MustCompile(`/etc/belfry/[a-z0-9/-]+/`)

// requireVolumes fails if a mount has no volume, a ConfigMap does not exist, or a variable, an argument or
// the configuration names a file in a directory that is not mounted.
func requireVolumes(t *testing.T, at string, s corev1.PodSpec, all map[string]metav1.Object) {
	t.Helper()
	var volumes, mounts, dirs []string
	text := strings.Join(s.Containers[0].Args, "\n")
	for _, v := range s.Containers[0].Env {
		text += "\n" + v.Value
	}
	for _, v := range s.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			config, ok := all["ConfigMap "+v.ConfigMap.Name].(*corev1.ConfigMap)
			require.True(t, ok, at)
			text += "\n" + config.Data["belfry.yaml"]
		}
	}
	for _, m := range s.Containers[0].VolumeMounts {
		require.True(t, m.ReadOnly, at)
		mounts, dirs = append(mounts, m.Name), append(dirs, m.MountPath+"/")
	}
	require.ElementsMatch(t, volumes, mounts, at)
	for _, named := range mentioned.FindAllString(text, -1) {
		require.Contains(t, dirs, named, at)
	}
}

// The chart rejects values that would leak a password, or start a process that ends at once.
func TestChart_RejectsValuesThatCannotWork(t *testing.T) {
	t.Parallel()
	const valid = "image: {repository: r}\ndatabase: {url: 'postgres://belfry@db/app'}\n"
	_, err := render(t.Context(), readValues(t, valid))
	require.NoError(t, err)
	for _, rejected := range [][2]string{
		{"database: {url: 'postgres://belfry@db/app'}", "repository"},
		{"image: {repository: r}", "url"},
		{"image: {repository: r}\ndatabase: {url: 'postgres://belfry:secret@db/app'}", "url"},
		{"image: {repository: r}\ndatabase: {url: 'postgres://belfry@db/app?sslmode=on&password=secret'}", "url"},
		{valid + "daemon: {database: {url: 'postgres://belfry:secret@db/app'}}", "url"},
		{valid + "daemon: {replica: 3}", "replica"},
		{valid + "config: {database: {url: 'postgres://db/app'}}", "url"},
		{valid + "config: {runner: {grace_period: 5s}}", "grace_period"},
		{valid + "config: {runer: {}}", "runer"},
		{valid + "relay: {enabled: true}", "config.senders is empty"},
		{valid + "api: {enabled: true}", "set config.api.tls or config.api.proxy"},
		{valid + "inbox: {enabled: true}", "set config.inbox.tls or config.inbox.proxies"},
	} {
		_, err := render(t.Context(), readValues(t, rejected[0]))
		require.ErrorContains(t, err, rejected[1], rejected[0])
	}
}

// Migrations run before anything else, with the login of the owner and without providers' secrets.
func TestChart_MigratesFirst(t *testing.T) {
	t.Parallel()
	all := objects(t, examples(t)["everything.yaml"])
	for _, key := range []string{"ConfigMap belfry-migrate", "Job belfry-migrate"} {
		require.Equal(t, "pre-install,pre-upgrade", all[key].GetAnnotations()["helm.sh/hook"], key)
	}
	require.Less(t, all["ConfigMap belfry-migrate"].GetAnnotations()["helm.sh/hook-weight"], "0")
	pod := podOf(all["Job belfry-migrate"])
	require.Equal(t, []string{"migrate", "up", "--lock-timeout", "30s"}, pod.Spec.Containers[0].Args)
	require.Len(t, pod.Spec.Volumes, 2)
	password := pod.Spec.Volumes[1].Projected.Sources[0].Secret
	require.Equal(t, "db-owner", password.Name)
	require.Equal(t, []corev1.KeyToPath{{Key: "password-file", Path: "pgpass"}}, password.Items)
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "BELFRY_DATABASE_URL" {
			require.Contains(t, v.Value, "postgres://owner@")
		}
	}
	require.Contains(t, podOf(all["Deployment belfry-daemon"]).Spec.Containers[0].Args, "--no-deliver")
}
