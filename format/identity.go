package format

// Identity says which part of which job a process is. It is part of the message of a process
// row, under the key "identity". A nil number and an empty text are unknown.
type Identity struct {
	// Rank counts the job's processes from 0 to WorldSize-1, LocalRank those of one node from 0
	// to LocalWorldSize-1.
	Rank           *int `json:"rank,omitempty"`
	WorldSize      *int `json:"world_size,omitempty"`
	LocalRank      *int `json:"local_rank,omitempty"`
	LocalWorldSize *int `json:"local_world_size,omitempty"`
	// NodeRank counts the job's nodes from 0; Node is the scheduler's name of this one.
	NodeRank *int   `json:"node_rank,omitempty"`
	Node     string `json:"node,omitempty"`
	// Job names the job for its scheduler or launcher; Attempt counts its restarts from 0.
	Job     string `json:"job,omitempty"`
	Attempt *int   `json:"attempt,omitempty"`
	// Pod and Namespace are Kubernetes names; PodUID is the pod's UID with dashes.
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	PodUID    string `json:"pod_uid,omitempty"`
	// Sources has for every key above where its value is from: "env RANK", "cgroup".
	Sources map[string]string `json:"sources,omitempty"`
}
