package main

import (
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// strategies maps each endpoint, by plural name and group, to its rules.
var strategies = map[string]rest.RESTCreateUpdateStrategy{
	"pods":                                   pod.Strategy,
	"configmaps":                             configmap.Strategy,
	"secrets":                                secret.Strategy,
	"services":                               service.Strategy,
	"serviceaccounts":                        serviceaccount.Strategy,
	"events":                                 event.Strategy,
	"nodes":                                  node.Strategy,
	"endpoints":                              endpoint.Strategy,
	"persistentvolumeclaims":                 persistentvolumeclaim.Strategy,
	"persistentvolumes":                      persistentvolume.Strategy,
	"limitranges":                            limitrange.Strategy,
	"resourcequotas":                         resourcequota.Strategy,
	"podtemplates":                           podtemplate.Strategy,
	"replicationcontrollers":                 replicationcontroller.Strategy,
	"namespaces":                             namespace.Strategy,
	"deployments.apps":                       deployment.Strategy,
	"replicasets.apps":                       replicaset.Strategy,
	"statefulsets.apps":                      statefulset.Strategy,
	"daemonsets.apps":                        daemonset.Strategy,
	"controllerrevisions.apps":               controllerrevision.Strategy,
	"jobs.batch":                             job.Strategy,
	"cronjobs.batch":                         cronjob.Strategy,
	"leases.coordination.k8s.io":             lease.Strategy,
	"endpointslices.discovery.k8s.io":        endpointslice.Strategy,
	"roles.rbac.authorization.k8s.io":        role.Strategy,
	"rolebindings.rbac.authorization.k8s.io": rolebinding.Strategy,
	"clusterroles.rbac.authorization.k8s.io": clusterrole.Strategy,
	"clusterrolebindings.rbac.authorization.k8s.io":                  clusterrolebinding.Strategy,
	"flowschemas.flowcontrol.apiserver.k8s.io":                       flowschema.Strategy,
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io":       prioritylevelconfiguration.Strategy,
	"events.events.k8s.io":                                           event.Strategy,
	"poddisruptionbudgets.policy":                                    poddisruptionbudget.Strategy,
	"ingresses.networking.k8s.io":                                    ingress.Strategy,
	"ingressclasses.networking.k8s.io":                               ingressclass.Strategy,
	"networkpolicies.networking.k8s.io":                              networkpolicy.Strategy,
	"servicecidrs.networking.k8s.io":                                 servicecidr.Strategy,
	"ipaddresses.networking.k8s.io":                                  ipaddress.Strategy,
	"priorityclasses.scheduling.k8s.io":                              priorityclass.Strategy,
	"storageclasses.storage.k8s.io":                                  storageclass.Strategy,
	"csidrivers.storage.k8s.io":                                      csidriver.Strategy,
	"csinodes.storage.k8s.io":                                        csinode.Strategy,
	"csistoragecapacities.storage.k8s.io":                            csistoragecapacity.Strategy,
	"volumeattachments.storage.k8s.io":                               volumeattachment.Strategy,
	"volumeattributesclasses.storage.k8s.io":                         volumeattributesclass.Strategy,
	"horizontalpodautoscalers.autoscaling":                           horizontalpodautoscaler.Strategy,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     mutatingwebhookconfiguration.Strategy,
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   validatingwebhookconfiguration.Strategy,
	"validatingadmissionpolicies.admissionregistration.k8s.io":       validatingadmissionpolicy.NewStrategy(nil, nil),
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": validatingadmissionpolicybinding.NewStrategy(nil, nil, nil),
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         mutatingadmissionpolicy.NewStrategy(nil, nil),
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   mutatingadmissionpolicybinding.NewStrategy(nil, nil, nil),
	"certificatesigningrequests.certificates.k8s.io":                 certificates.Strategy,
	"runtimeclasses.node.k8s.io":                                     runtimeclass.Strategy,
	"deviceclasses.resource.k8s.io":                                  deviceclass.Strategy,
	"resourceslices.resource.k8s.io":                                 resourceslice.Strategy,
	"resourceclaims.resource.k8s.io":                                 resourceclaim.NewStrategy(nil, nil),
	"resourceclaimtemplates.resource.k8s.io":                         resourceclaimtemplate.NewStrategy(nil),
}

// selectable lists the fields that selectors may name beside name and namespace: label, paths in JSON, value
// of a missing field. The server keeps them in two places, as conversion functions and as field sets.
var selectable = map[string][][]any{
	"pods": {
		{"spec.nodeName", []string{"spec.nodeName"}, ""},
		{"spec.restartPolicy", []string{"spec.restartPolicy"}, ""},
		{"spec.schedulerName", []string{"spec.schedulerName"}, ""},
		{"spec.serviceAccountName", []string{"spec.serviceAccountName"}, ""},
		{"spec.hostNetwork", []string{"spec.hostNetwork"}, "false"},
		{"spec.host", []string{"spec.nodeName"}, ""},
		{"status.phase", []string{"status.phase"}, ""},
		{"status.podIP", []string{"status.podIP"}, ""},
		{"status.podIPs", []string{}, ""},
		{"status.nominatedNodeName", []string{"status.nominatedNodeName"}, ""},
	},
	"nodes": {
		{"spec.unschedulable", []string{"spec.unschedulable"}, "false"},
	},
	"namespaces": {
		{"status.phase", []string{"status.phase"}, ""},
	},
	"secrets": {
		{"type", []string{"type"}, ""},
	},
	"services": {
		{"spec.clusterIP", []string{"spec.clusterIP"}, ""},
		{"spec.type", []string{"spec.type"}, ""},
	},
	"replicationcontrollers": {
		{"status.replicas", []string{"status.replicas"}, "0"},
	},
	"jobs.batch": {
		{"status.successful", []string{"status.succeeded"}, "0"},
	},
	"certificatesigningrequests.certificates.k8s.io": {
		{"spec.signerName", []string{"spec.signerName"}, ""},
	},
	"resourceslices.resource.k8s.io": {
		{"spec.nodeName", []string{"spec.nodeName"}, ""},
		{"spec.driver", []string{"spec.driver"}, ""},
	},
	"events": {
		{"involvedObject.kind", []string{"involvedObject.kind"}, ""},
		{"involvedObject.namespace", []string{"involvedObject.namespace"}, ""},
		{"involvedObject.name", []string{"involvedObject.name"}, ""},
		{"involvedObject.uid", []string{"involvedObject.uid"}, ""},
		{"involvedObject.apiVersion", []string{"involvedObject.apiVersion"}, ""},
		{"involvedObject.resourceVersion", []string{"involvedObject.resourceVersion"}, ""},
		{"involvedObject.fieldPath", []string{"involvedObject.fieldPath"}, ""},
		{"reason", []string{"reason"}, ""},
		{"reportingComponent", []string{"reportingComponent"}, ""},
		{"source", []string{"source.component", "reportingComponent"}, ""},
		{"type", []string{"type"}, ""},
	},
	"events.events.k8s.io": {
		{"regarding.kind", []string{"regarding.kind"}, ""},
		{"regarding.namespace", []string{"regarding.namespace"}, ""},
		{"regarding.name", []string{"regarding.name"}, ""},
		{"regarding.uid", []string{"regarding.uid"}, ""},
		{"regarding.apiVersion", []string{"regarding.apiVersion"}, ""},
		{"regarding.resourceVersion", []string{"regarding.resourceVersion"}, ""},
		{"regarding.fieldPath", []string{"regarding.fieldPath"}, ""},
		{"reason", []string{"reason"}, ""},
		{"reportingController", []string{"reportingController"}, ""},
		{"type", []string{"type"}, ""},
	},
}
