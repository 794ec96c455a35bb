-- Health of a WaitDeployment for Argo CD: waiting is Progressing, what needs somebody to act is Degraded.
-- In the ConfigMap argocd-cm: resource.customizations.health.apps.mainstay.dev_WaitDeployment
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready = conditions.Ready or {}

-- What is said is about an earlier spec, or nothing is said yet.
if status.observedGeneration ~= obj.metadata.generation or ready.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "waiting for the controller to see the current spec"}
end
if ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
if (conditions.Stalled or {}).status == "True" then
  return {status = "Degraded", message = ready.message}
end
if ready.reason == "Paused" then
  return {status = "Suspended", message = ready.message}
end
return {status = "Progressing", message = ready.message}
