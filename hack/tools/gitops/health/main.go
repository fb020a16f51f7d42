// Prints what kstatus says of objects, each time that it says something else than before: the library by which
// Flux and Helm tell whether an object is ready. It reads what `kubectl get -o json --watch
// --output-watch-events` writes, and answers with lines of JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

type verdict struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	Health  status.Status `json:"health"`
	Message string        `json:"message"`
}

func main() {
	if err := judge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func judge(from io.Reader, to io.Writer) error {
	said := map[types.UID]status.Status{}
	events, verdicts := json.NewDecoder(from), json.NewEncoder(to)
	for {
		var seen event
		if err := events.Decode(&seen); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if seen.Type != "ADDED" && seen.Type != "MODIFIED" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(seen.Object); err != nil {
			return err
		}
		found, err := status.Compute(object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if said[object.GetUID()] == found.Status {
			continue
		}
		said[object.GetUID()] = found.Status
		if err := verdicts.Encode(verdict{object.GetKind(), object.GetName(), found.Status, found.Message}); err != nil {
			return err
		}
	}
}
