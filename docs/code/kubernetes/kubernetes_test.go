// Package kubernetes_test holds docs/how-to/kubernetes.md: its Go code, and its manifests
// against what the code says.
package kubernetes_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func probes(ob *outbox.Outbox) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", httptx.Health(httptx.HealthConfig{Outbox: ob}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent) // the process runs; the database is not its business
	})
	return mux
}

type probe struct {
	HTTPGet struct {
		Path string
		Port string
	} `yaml:"httpGet"`
	PeriodSeconds  int `yaml:"periodSeconds"`
	TimeoutSeconds int `yaml:"timeoutSeconds"`
}

type env struct {
	Name      string
	Value     string
	ValueFrom struct {
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type container struct {
	Name, Image string
	Command     []string
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Env            []env
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct {
			Sleep struct{ Seconds int }
		} `yaml:"preStop"`
	}
	Resources struct{ Requests, Limits map[string]string }
}

type labels struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// manifest has the fields that the page uses, and no others.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Replicas     int
		BackoffLimit int `yaml:"backoffLimit"`
		Strategy     struct {
			RollingUpdate struct {
				MaxSurge       int `yaml:"maxSurge"`
				MaxUnavailable int `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
		Selector labels
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
				RestartPolicy                 string `yaml:"restartPolicy"`
				Containers                    []container
			}
		}
		PodMetricsEndpoints []struct{ Port, Path, Interval string } `yaml:"podMetricsEndpoints"`
	}
	Annotations map[string]string // of the block that has nothing else
}

// manifests are the YAML blocks of the page, by kind; the one without a kind is "".
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	page, err := os.ReadFile("../../how-to/kubernetes.md")
	require.NoError(t, err)
	found := map[string]manifest{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		decoder := yaml.NewDecoder(bytes.NewReader(block[1]))
		decoder.KnownFields(true)
		var m manifest
		require.NoError(t, decoder.Decode(&m), "%s", block[1])
		require.NotContains(t, found, m.Kind)
		found[m.Kind] = m
	}
	require.Len(t, found, 4)
	return found
}

func TestTheManifestsFitTogether(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	deployment, job, monitor := all["Deployment"], all["Job"], all["PodMonitor"]
	require.Equal(t, "apps/v1", deployment.APIVersion)
	require.Equal(t, "batch/v1", job.APIVersion)
	pods := deployment.Spec.Template
	require.Equal(t, pods.Metadata.Labels, deployment.Spec.Selector.MatchLabels)
	require.Equal(t, pods.Metadata.Labels, monitor.Spec.Selector.MatchLabels)
	service := pods.Spec.Containers[0]
	port := service.Ports[0]
	require.Equal(t, port.Name, monitor.Spec.PodMetricsEndpoints[0].Port)
	require.Equal(t, port.Name, service.ReadinessProbe.HTTPGet.Port)
	require.Equal(t, port.Name, service.LivenessProbe.HTTPGet.Port)
	require.EqualValues(t, 8080, port.ContainerPort)
	require.Equal(t, "8080", all[""].Annotations["prometheus.io/port"])
	require.Equal(t, monitor.Spec.PodMetricsEndpoints[0].Path, all[""].Annotations["prometheus.io/path"])

	migrate := job.Spec.Template.Spec.Containers[0]
	require.Equal(t, service.Image, migrate.Image, "the command is of the version that is deployed")
	require.Equal(t, "/outbox schema create", strings.Join(migrate.Command, " "))
	require.Equal(t, "OUTBOX_DSN", migrate.Env[0].Name)
	require.Equal(t, service.Env[0].ValueFrom, migrate.Env[0].ValueFrom)
	require.Equal(t, "Never", job.Spec.Template.Spec.RestartPolicy)
}

func TestThePodsHaveEnoughTimeToStop(t *testing.T) {
	t.Parallel()
	pods := manifests(t)["Deployment"].Spec.Template.Spec
	const requests = 10 * time.Second
	closing := 4*outbox.DefaultDrainTimeout + 7*time.Second
	stop := time.Duration(pods.Containers[0].Lifecycle.PreStop.Sleep.Seconds)*time.Second + requests + closing
	require.Equal(t, 42*time.Second, stop, "the page has this sum")
	require.Less(t, stop, time.Duration(pods.TerminationGracePeriodSeconds)*time.Second)
	require.Greater(t, time.Duration(pods.Containers[0].ReadinessProbe.TimeoutSeconds)*time.Second, httptx.DefaultHealthTimeout)
}

func TestTheProbesAnswerAtThePathsOfTheManifest(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	service := manifests(t)["Deployment"].Spec.Template.Spec.Containers[0]
	for _, name := range []string{"the process that delivers", "the standby"} {
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
		require.NoError(t, err)
		mux := probes(ob)
		status := func(p probe) int {
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, p.HTTPGet.Path, nil))
			return recorder.Code
		}
		require.Equal(t, http.StatusServiceUnavailable, status(service.ReadinessProbe), "%s has not polled yet", name)
		require.Equal(t, http.StatusNoContent, status(service.LivenessProbe))
		require.NoError(t, ob.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, ob.Close(context.Background())) })
		require.Eventually(t, func() bool { return status(service.ReadinessProbe) == http.StatusOK }, 10*time.Second, time.Millisecond, name)
	}
}
