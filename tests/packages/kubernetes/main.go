// Decodes the manifests by the types of the Kubernetes API, and refuses what those do not know. Prints what a script
// needs to run the containers as processes: a line of JSON for each workload.
//
//	go run -modfile=v36.mod . FILE...
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// A container as a script runs it.
type workload struct {
	File       string            `json:"file"`
	Kind       string            `json:"kind"`
	Replicas   int32             `json:"replicas"`
	Args       []string          `json:"args"`
	Env        map[string]string `json:"env"`
	Secrets    []string          `json:"secrets"`
	Liveness   string            `json:"liveness"`
	Readiness  string            `json:"readiness"`
	PreStop    int64             `json:"pre_stop"`
	Grace      int64             `json:"grace"`
	Budget     int               `json:"budget"`
	User       int64             `json:"user"`
	MountPaths []string          `json:"mounts"`
}

func decode(document []byte) (any, error) {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, err
	}
	objects := map[meta.TypeMeta]any{
		{APIVersion: "v1", Kind: "Service"}:                    new(core.Service),
		{APIVersion: "apps/v1", Kind: "StatefulSet"}:           new(apps.StatefulSet),
		{APIVersion: "apps/v1", Kind: "Deployment"}:            new(apps.Deployment),
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}: new(policy.PodDisruptionBudget),
	}
	object, known := objects[kind]
	if !known {
		return nil, fmt.Errorf("no object of the manifests is a %s of %s", kind.Kind, kind.APIVersion)
	}
	return object, yaml.UnmarshalStrict(document, object)
}

func path(probe *core.Probe) string {
	if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port.StrVal != "admin" {
		return ""
	}
	return probe.HTTPGet.Path
}

func of(file, kind string, replicas *int32, pod core.PodSpec) workload {
	container := pod.Containers[0]
	found := workload{File: filepath.Base(file), Kind: kind, Replicas: *replicas, Args: container.Args, Env: map[string]string{}}
	for _, variable := range container.Env {
		if variable.ValueFrom != nil {
			found.Secrets = append(found.Secrets, variable.Name)
		} else {
			found.Env[variable.Name] = variable.Value
		}
	}
	found.Liveness, found.Readiness = path(container.LivenessProbe), path(container.ReadinessProbe)
	found.PreStop, found.Grace = container.Lifecycle.PreStop.Sleep.Seconds, *pod.TerminationGracePeriodSeconds
	found.User = *pod.SecurityContext.RunAsUser
	for _, mount := range container.VolumeMounts {
		found.MountPaths = append(found.MountPaths, mount.MountPath)
	}
	return found
}

func run(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var workloads []workload
	budget := 0
	for number, document := range bytes.Split(text, []byte("\n---\n")) {
		object, err := decode(document)
		if err != nil {
			return fmt.Errorf("%s, object %d: %w", file, number+1, err)
		}
		// What would be overlooked is no check: one more field has to be refused.
		planted := append(bytes.TrimRight(document, "\n"), []byte("\nspecc: {}\n")...)
		if _, err := decode(planted); err == nil {
			return fmt.Errorf("%s, object %d: an unknown field was not noticed", file, number+1)
		}
		switch object := object.(type) {
		case *apps.StatefulSet:
			workloads = append(workloads, of(file, "StatefulSet", object.Spec.Replicas, object.Spec.Template.Spec))
		case *apps.Deployment:
			workloads = append(workloads, of(file, "Deployment", object.Spec.Replicas, object.Spec.Template.Spec))
		case *policy.PodDisruptionBudget:
			budget = object.Spec.MinAvailable.IntValue()
		}
	}
	for _, found := range workloads {
		found.Budget = budget
		line, err := json.Marshal(found)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

func main() {
	for _, file := range os.Args[1:] {
		if err := run(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
